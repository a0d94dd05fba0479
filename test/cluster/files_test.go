package cluster

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPortsOfTwoClustersDiffer(t *testing.T) {
	seen := map[int]bool{}
	for range 20 {
		p, err := reservePorts()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := p.release(); err != nil {
				t.Error(err)
			}
		})
		for range blockSize - 1 {
			port := p.take()
			if seen[port] {
				t.Errorf("port %d was taken twice", port)
			}
			seen[port] = true
		}
	}
}

func TestLockIsHeldUntilUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tryLock(path); !errors.Is(err, errLocked) {
		t.Errorf("a second lock: got %v", err)
	}
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("too late"))
	defer cancel()
	waited := 0
	_, err = lock(ctx, path, func() { waited++ })
	if err == nil || waited != 1 {
		t.Errorf("waiting for the lock: got %v, said so %d times", err, waited)
	}
	go func() {
		time.Sleep(50 * time.Millisecond)
		if err := first.unlock(); err != nil {
			t.Error(err)
		}
	}()
	second, err := lock(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.unlock(); err != nil {
		t.Error(err)
	}
}

func TestSweep(t *testing.T) {
	now := time.Now()
	for name, tc := range map[string]struct {
		age, logs time.Duration
		owned     bool
		want      []string
	}{
		"in use":              {age: 48 * time.Hour, logs: 48 * time.Hour, owned: true, want: []string{"etcd", "logs", "owner"}},
		"just made":           {want: []string{"etcd", "logs", "owner"}},
		"left an hour ago":    {age: time.Hour, logs: time.Hour, want: []string{"logs"}},
		"left two days ago":   {age: 48 * time.Hour, logs: 48 * time.Hour},
		"logs two days old":   {age: time.Hour, logs: 48 * time.Hour},
		"swept an hour later": {age: time.Hour, logs: 2 * time.Hour, want: []string{"logs"}},
	} {
		t.Run(name, func(t *testing.T) {
			parent := t.TempDir()
			dir := filepath.Join(parent, "gpuctl-cluster-1")
			for _, name := range []string{"logs", "etcd"} {
				if err := os.MkdirAll(filepath.Join(dir, name), 0o750); err != nil {
					t.Fatal(err)
				}
			}
			owner, err := tryLock(filepath.Join(dir, ownerFile))
			if err != nil {
				t.Fatal(err)
			}
			if !tc.owned {
				if err := owner.unlock(); err != nil {
					t.Fatal(err)
				}
			}
			chtimes(t, filepath.Join(dir, logFolder), now.Add(-tc.logs))
			chtimes(t, dir, now.Add(-tc.age))
			sweep(parent, now)
			if diff := cmp.Diff(tc.want, filesIn(dir)); diff != "" {
				t.Errorf("what is left (-want +got):\n%s", diff)
			}
		})
	}
}

func chtimes(t *testing.T, path string, when time.Time) {
	t.Helper()
	if err := os.Chtimes(path, when, when); err != nil {
		t.Fatal(err)
	}
}

func TestLastLines(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"nothing":     {},
		"one line":    {"a\n", "a"},
		"few lines":   {"a\nb", "a\nb"},
		"many lines":  {"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n21\n22\n", "3\n4\n5\n6\n7\n8\n9\n10\n11\n12\n13\n14\n15\n16\n17\n18\n19\n20\n21\n22"},
		"empty lines": {"\n\na\n\n", "\n\na"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := string(lastLines([]byte(tc.text))); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
