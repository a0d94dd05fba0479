package cluster

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"
)

// errLocked says that another process, or another part of this one, has a lock.
var errLocked = errors.New("locked")

// fileLock is a lock on a file. It ends with the process that has it.
type fileLock struct{ file *os.File }

// tryLock takes the lock on a file, which it creates. It returns errLocked
// without waiting when the lock is taken.
func tryLock(path string) (*fileLock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if errors.Is(err, fs.ErrPermission) {
		f, err = os.Open(path) // another user's will do
	}
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err == nil {
		return &fileLock{f}, nil
	}
	f.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("%s: %w", path, errLocked)
	}
	return nil, fmt.Errorf("lock %s: %w", path, err)
}

// lock waits for the lock on a file. It calls waiting once if it has to wait.
func lock(ctx context.Context, path string, waiting func()) (*fileLock, error) {
	for {
		l, err := tryLock(path)
		if !errors.Is(err, errLocked) {
			return l, err
		}
		if waiting != nil {
			waiting()
			waiting = nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for the lock %s: %w", path, context.Cause(ctx))
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (l *fileLock) unlock() error { return l.file.Close() }
