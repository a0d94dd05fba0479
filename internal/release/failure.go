package release

import "sync"

// HookError is the failure of a hook of the release.
type HookError struct {
	Job string // that failed, in the release's namespace; "" when it was another object
	Err error
}

// Error implements error.
func (e *HookError) Error() string { return e.Err.Error() }

// Unwrap returns what Helm says.
func (e *HookError) Unwrap() error { return e.Err }

// failedHook is the Job of the hook that has failed. Helm's error says it in its text
// at best, and not at all when the time was over.
type failedHook struct {
	mu  sync.Mutex
	job string
}

func (f *failedHook) set(job string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.job = job
}

func (f *failedHook) get() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.job
}
