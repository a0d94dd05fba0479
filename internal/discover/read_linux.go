package discover

import (
	"errors"
	"io/fs"
	"syscall"
)

// readFile reads at most limit bytes of a sysfs attribute, with three system
// calls where os.ReadFile takes ten: attributes come whole in one read.
func readFile(path string, limit int) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer func() { _ = syscall.Close(fd) }()
	var page [pageSize]byte
	n, err := retry(func() (int, error) { return syscall.Read(fd, page[:min(limit, pageSize)]) })
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return append([]byte(nil), page[:n]...), nil
}

// retry repeats a call that a signal interrupted, as package os does. Where
// FUSE serves /sys (lxcfs), even opening can be interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, syscall.EINTR) {
			return n, err
		}
	}
}
