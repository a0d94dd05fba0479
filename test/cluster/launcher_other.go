//go:build !linux

package cluster

import "syscall"

// tied returns the attributes of a process that this one stops when it ends.
// Only Linux can do so when this one is killed.
func tied() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }
