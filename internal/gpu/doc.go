// Package gpu holds the vocabulary that every other package speaks: PCI
// addresses and ids, functions of a host, resource names, and the rules by
// which NVIDIA's KubeVirt device plugin names and counts what it serves.
//
// The package is pure: it does no I/O, reads no clock, and imports nothing of
// gpuctl's own.
package gpu
