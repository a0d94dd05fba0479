package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// workdir is the temporary folder of one cluster. Its owner has a lock in it, so
// that a folder whose owner was killed can be told from one in use.
type workdir struct {
	path string
	lock *fileLock
}

const (
	workdirPattern = "gpuctl-cluster-*"
	ownerFile      = "owner"
	logFolder      = "logs"

	// A folder this young may be one whose owner is about to lock it.
	young = time.Minute
	// Logs of failed tests are kept for so long.
	keepLogs = 24 * time.Hour
)

// newWorkdir makes a folder, after it has removed what is left of clusters
// whose process was killed.
func newWorkdir() (*workdir, error) {
	sweep(os.TempDir(), time.Now())
	path, err := os.MkdirTemp("", workdirPattern)
	if err != nil {
		return nil, fmt.Errorf("make a folder for the cluster: %w", err)
	}
	l, err := tryLock(filepath.Join(path, ownerFile))
	if err != nil {
		return nil, err
	}
	w := &workdir{path: path, lock: l}
	return w, errors.Join(os.Mkdir(w.logs(), 0o700), os.Mkdir(w.temp(), 0o700))
}

func (w *workdir) file(name string) string { return filepath.Join(w.path, name) }

func (w *workdir) logs() string { return w.file(logFolder) }

// temp is the folder for what the components make and do not remove.
func (w *workdir) temp() string { return w.file("tmp") }

func (w *workdir) log(name string) string { return filepath.Join(w.logs(), name+".log") }

// remove removes the folder, or all of it but the logs.
func (w *workdir) remove(keepLogs bool) error {
	return errors.Join(discard(w.path, keepLogs), w.lock.unlock())
}

// sweep removes what is left of the clusters of killed processes: at once all
// that is large or secret, and the logs later, for they may tell what happened.
// What cannot be removed (another user's) is left.
func sweep(parent string, now time.Time) {
	paths, err := filepath.Glob(filepath.Join(parent, workdirPattern))
	if err != nil {
		return
	}
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil || now.Sub(info.ModTime()) < young {
			continue
		}
		l, err := tryLock(filepath.Join(path, ownerFile))
		if err != nil {
			continue
		}
		logs, err := os.Stat(filepath.Join(path, logFolder))
		if err == nil {
			_ = discard(path, now.Sub(logs.ModTime()) < keepLogs)
		}
		_ = l.unlock()
	}
}

// discard removes a folder, or all that is in it but the logs.
func discard(path string, keepLogs bool) error {
	if !keepLogs {
		return os.RemoveAll(path)
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != logFolder {
			err = errors.Join(err, os.RemoveAll(filepath.Join(path, e.Name())))
		}
	}
	return err
}
