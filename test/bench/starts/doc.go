// Package starts measures how much longer VMs take to start that reference devices than
// VMs that name what they want, without gpuctl, and counts what gpuctl writes for them; and
// how much longer VMs without devices take beside others that are refused.
package starts
