// Package patch wires GPUs into a KubeVirt CR, or into the HyperConverged that
// writes it. Plan is a pure function of the current object, the inventories and
// the workloads; it loses nothing that is there and is idempotent.
package patch
