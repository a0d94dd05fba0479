package release

import (
	"regexp"
	"strings"
	"sync"
)

// HookError is the failure of a hook of the release.
type HookError struct {
	Job string // that failed, in the release's namespace; "" when it was another object
	Err error
}

// Error implements error.
func (e *HookError) Error() string {
	if e.Job == "" {
		return "hook: " + e.Err.Error()
	}
	return "hook job/" + e.Job + ": " + e.Err.Error()
}

// Unwrap returns what Helm says.
func (e *HookError) Unwrap() error { return e.Err }

// oneLine is an error of Helm's whose list of errors takes no line each.
type oneLine struct{ error }

var errorList = regexp.MustCompile(`\d+ errors? occurred:\s*\* `)

// Error implements error.
func (e oneLine) Error() string {
	before, list, ok := cutList(e.error.Error())
	if !ok {
		return strings.TrimSpace(before)
	}
	return before + strings.ReplaceAll(strings.TrimSpace(list), "\n\t* ", "; ")
}

// cutList cuts a text around the head of a list of errors.
func cutList(text string) (before, list string, ok bool) {
	at := errorList.FindStringIndex(text)
	if at == nil {
		return text, "", false
	}
	return text[:at[0]], text[at[1]:], true
}

// Unwrap returns Helm's error.
func (e oneLine) Unwrap() error { return e.error }

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
