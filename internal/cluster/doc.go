// Package cluster turns Kubernetes objects into the facts that the pure
// packages work on. It knows the shapes of Nodes, Pods, KubeVirt's workloads
// and KubeVirt's legacy ConfigMap.
package cluster
