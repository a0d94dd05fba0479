// Package starts measures how much longer VMs take to start that reference devices than
// VMs that name what they want, without gpuctl, and counts what gpuctl writes for them.
package starts
