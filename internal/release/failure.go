package release

import (
	"regexp"
	"strings"
)

// failedJob is how Helm says that a hook's Job has failed.
var failedJob = regexp.MustCompile(`job "?([a-z0-9][-a-z0-9.]*)"? failed`)

// FailedJob returns the Job of a hook that an error is about. Helm has no error type
// for it.
func FailedJob(err error) (job string, ok bool) {
	if err == nil {
		return "", false
	}
	m := failedJob.FindStringSubmatch(err.Error())
	if m == nil {
		return "", false
	}
	return m[1], true
}

// HookFailed reports an error of a hook, whatever it was.
func HookFailed(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "hook") || strings.Contains(err.Error(), "failed pre-delete"))
}
