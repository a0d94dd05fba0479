package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// built is what clusters consist of.
type built struct {
	files    map[string]string // paths of programs and documents, by name
	versions map[string]string // by name of the tool module
}

// unused is how long a build stays in the cache after its last use.
const unused = 14 * 24 * time.Hour

// builder builds the tool modules into a cache outside the repository.
type builder struct {
	cache    string
	launcher *launcher
	progress io.Writer
}

// Build builds what clusters consist of, unless it is in the cache: it takes
// minutes once. It says so on progress.
func Build(ctx context.Context, progress io.Writer) error {
	l := newLauncher()
	defer l.close()
	_, err := build(ctx, l, progress)
	return err
}

func build(ctx context.Context, l *launcher, progress io.Writer) (built, error) {
	cache, err := cacheDir()
	if err != nil {
		return built{}, err
	}
	dir, err := sourceDir()
	if err != nil {
		return built{}, err
	}
	all := built{files: map[string]string{}, versions: map[string]string{}}
	b := builder{cache: cache, launcher: l, progress: progress}
	for _, s := range sources() {
		folder, err := b.folder(ctx, s, filepath.Join(dir, s.name))
		if err != nil {
			return built{}, fmt.Errorf("build %s: %w", s.name, err)
		}
		if err := all.add(s.name, folder); err != nil {
			return built{}, err
		}
	}
	return all, nil
}

// add adds what is in a folder of the cache.
func (all built) add(name, folder string) error {
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		all.files[e.Name()] = filepath.Join(folder, e.Name())
	}
	version, err := os.ReadFile(all.files[versionFile])
	all.versions[name] = string(version)
	return err
}

func cacheDir() (string, error) {
	cache := os.Getenv("XDG_CACHE_HOME")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return "", fmt.Errorf("find the folder for built programs: %w", err)
		}
		cache = filepath.Join(home, ".cache")
	}
	return filepath.Join(cache, "gpuctl", "cluster"), nil
}

// folder returns the folder of the cache that holds s, built if need be. Any
// number of processes may ask at once: one builds, the others wait.
func (b builder) folder(ctx context.Context, s source, dir string) (folder string, err error) {
	toolchain, err := b.goCommand(ctx, dir, "env", "GOVERSION", "GOOS", "GOARCH")
	if err != nil {
		return "", err
	}
	key, err := s.key(dir, toolchain)
	if err != nil {
		return "", err
	}
	folder = filepath.Join(b.cache, key)
	if used(folder) {
		return folder, nil
	}
	if err := os.MkdirAll(b.cache, 0o750); err != nil {
		return "", err
	}
	l, err := lock(ctx, filepath.Join(b.cache, s.name+".lock"), func() {
		fmt.Fprintf(b.progress, "cluster: waiting for another process that builds %s\n", s.name)
	})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, l.unlock()) }()
	if used(folder) {
		return folder, nil
	}
	if err := b.clean(s); err != nil {
		return "", err
	}
	return folder, b.build(ctx, s, dir, folder)
}

// used marks a folder of the cache as used now, and reports whether it exists.
func used(folder string) bool {
	now := time.Now()
	return os.Chtimes(folder, now, now) == nil
}

// clean removes what earlier builds of s left behind when they were killed, and
// builds that nobody has used for a while. The caller has the lock.
func (b builder) clean(s source) error {
	entries, err := os.ReadDir(b.cache)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !e.IsDir() || !strings.HasPrefix(e.Name(), s.name+"-") {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if strings.HasSuffix(e.Name(), unfinished) || time.Since(info.ModTime()) > unused {
			if err := os.RemoveAll(filepath.Join(b.cache, e.Name())); err != nil {
				return err
			}
		}
	}
	return nil
}
