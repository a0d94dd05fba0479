// Package v1alpha1 is gpuctl's API: the kinds of group gpuctl.dev, and the keys
// and names that gpuctl's parts and its users share.
//
// +kubebuilder:object:generate=true
// +groupName=gpuctl.dev
package v1alpha1
