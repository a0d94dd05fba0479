package cluster

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// tinySource writes a tool module with one program, which prints a text.
func tinySource(t *testing.T, text string) (source, string) {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module example.com/tiny\n\ngo 1.26.0\n")
	write(t, filepath.Join(dir, "tiny", "main.go"), "package main\n\nfunc main() { print("+text+") }\n")
	return source{
		name: "tiny", release: "example.com/tiny", packages: []string{"./tiny"},
		rename: map[string]string{"tiny": "small"}, generate: "small", document: "text",
	}, dir
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// buffer is one that many may write to.
type buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

func newBuilder(t *testing.T) (builder, *buffer) {
	t.Helper()
	l := newLauncher()
	t.Cleanup(l.close)
	p := &buffer{}
	return builder{cache: filepath.Join(t.TempDir(), "cache"), launcher: l, progress: p}, p
}

func TestModuleIsBuiltOnceForAll(t *testing.T) {
	b, out := newBuilder(t)
	s, dir := tinySource(t, `"hello"`)
	folders := make([]string, 4)
	var wg sync.WaitGroup
	for i := range folders {
		wg.Go(func() {
			var err error
			if folders[i], err = b.folder(t.Context(), s, dir); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := strings.Count(out.String(), "cluster: built tiny"); got != 1 {
		t.Errorf("built %d times:\n%s", got, out.String())
	}
	for _, folder := range folders {
		if folder != folders[0] {
			t.Errorf("got folders %q", folders)
		}
	}
	if diff := cmp.Diff([]string{"VERSION", "small", "text"}, filesIn(folders[0])); diff != "" {
		t.Errorf("what is built (-want +got):\n%s", diff)
	}
}

func TestKeyFollowsTheSources(t *testing.T) {
	s, dir := tinySource(t, `"hello"`)
	key := func(s source, toolchain string) string {
		k, err := s.key(dir, toolchain)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	first := key(s, "go1.26.8 linux amd64")
	keys := map[string]bool{first: true}
	if again := key(s, "go1.26.8 linux amd64"); again != first {
		t.Errorf("the key of the same sources is %q, and then %q", first, again)
	}
	keys[key(s, "go1.26.9 linux amd64")] = true
	other := s
	other.stamped = []string{"example.com/version"}
	keys[key(other, "go1.26.8 linux amd64")] = true
	write(t, filepath.Join(dir, "tiny", "main.go"), "package main\n\nfunc main() {}\n")
	keys[key(s, "go1.26.8 linux amd64")] = true
	write(t, filepath.Join(dir, "go.sum"), "")
	keys[key(s, "go1.26.8 linux amd64")] = true
	if len(keys) != 5 {
		t.Errorf("got %d keys from 5 builds: %v", len(keys), keys)
	}
}

func TestFailedBuildIsExplainedAndLeavesNothing(t *testing.T) {
	b, _ := newBuilder(t)
	s, dir := tinySource(t, "missing")
	folder, err := b.folder(t.Context(), s, dir)
	if err == nil || !strings.Contains(err.Error(), "undefined: missing") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(folder); err == nil {
		t.Errorf("the folder %s is there", folder)
	}
	_, dir = tinySource(t, `"hello"`)
	if _, err := b.folder(t.Context(), s, dir); err != nil {
		t.Errorf("the next build: %v", err)
	}
	if got := filesIn(b.cache); len(got) != 2 {
		t.Errorf("the cache holds %q", got)
	}
}

func TestBuildStopsInTime(t *testing.T) {
	b, _ := newBuilder(t)
	s, dir := tinySource(t, `"hello"`)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.compile(ctx, s, dir, t.TempDir(), "v1.0.0"); err == nil || !strings.Contains(err.Error(), "up -build") {
		t.Errorf("got %v", err)
	}
}

// The kernel ties processes to threads, and Go ends threads.
func TestProcessOutlivesTheThreadThatAskedForIt(t *testing.T) {
	l := newLauncher()
	t.Cleanup(l.close)
	cmd := exec.CommandContext(t.Context(), "sleep", "600")
	started := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		started <- l.start(cmd)
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		t.Errorf("the process ended: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
}
