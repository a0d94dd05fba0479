// Package cluster runs a Kubernetes cluster with KubeVirt for tests, as plain
// processes on this machine: no container engine, no privileges, no network.
//
// The control plane, virt-api, virt-controller and virt-operator are real and
// unmodified. They are built from source on first use, from the modules in
// controlplane and kubevirt, and cached. Nodes are objects that this package
// keeps alive: there is neither a kubelet nor a virt-handler.
package cluster
