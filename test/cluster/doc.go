// Package cluster runs a Kubernetes cluster with KubeVirt for tests, as plain
// processes on this machine: no container engine, no privileges, no network.
//
// The control plane, virt-api, virt-controller and virt-operator are real and
// unmodified. They are built from source on first use, from the modules in
// controlplane and kubevirt, and cached. Nodes are objects that this package
// keeps alive. It plays their kubelets: pods of the images that a test names run
// as processes, of all others it only says that they run or how they ended. It
// plays virt-handlers as well.
package cluster
