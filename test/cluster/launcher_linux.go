package cluster

import "syscall"

// tied returns the attributes of a process that the kernel kills when its
// parent ends, whatever the reason.
func tied() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
