package release

import (
	"errors"
	"testing"
)

func TestOneLine(t *testing.T) {
	for name, tc := range map[string]struct{ said, want string }{
		"as it is":   {"context deadline exceeded", "context deadline exceeded"},
		"a hook":     {"post-upgrade hooks failed: 1 error occurred:\n\t* job wire failed: BackoffLimitExceeded\n\n", "post-upgrade hooks failed: job wire failed: BackoffLimitExceeded"},
		"two errors": {"2 errors occurred:\n\t* timed out\n\t* no such pod\n\n", "timed out; no such pod"},
		"the schema": {"values don't meet the specifications:\n- gpu: no such key\n- hook: neither\n", "values don't meet the specifications:\n- gpu: no such key\n- hook: neither"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := (oneLine{errors.New(tc.said)}).Error(); got != tc.want {
				t.Errorf("Error() = %q, want %q", got, tc.want)
			}
		})
	}
}
