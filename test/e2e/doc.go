// Package e2e holds stories on a real control plane with real KubeVirt: what a
// user types, and what the cluster then does.
package e2e
