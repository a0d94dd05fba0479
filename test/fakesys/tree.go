package fakesys

import (
	"os"
	"path"
	"path/filepath"
	"strings"
)

// tree writes files below root. The first error sticks and stops all further
// writing, so that callers check once, at the end.
type tree struct {
	root string
	made map[string]bool // directories
	err  error
}

func (t *tree) path(name string) string { return filepath.Join(t.root, filepath.FromSlash(name)) }

func (t *tree) dir(name string) {
	if t.err != nil || t.made[name] {
		return
	}
	t.err = os.MkdirAll(t.path(name), 0o755)
	if t.made == nil {
		t.made = map[string]bool{}
	}
	t.made[name] = true
}

func (t *tree) bytes(name string, data []byte) {
	t.dir(path.Dir(name))
	if t.err == nil {
		t.err = os.WriteFile(t.path(name), data, 0o644)
	}
}

// file writes one line, with the newline that sysfs ends most values with.
func (t *tree) file(name, line string) { t.bytes(name, []byte(line+"\n")) }

// link makes name a relative symbolic link to target, both below root, as
// sysfs has them. The same link written twice is no error.
func (t *tree) link(name, target string) {
	t.dir(path.Dir(name))
	if t.err != nil {
		return
	}
	rel, err := filepath.Rel(t.path(path.Dir(name)), t.path(target))
	if err != nil {
		t.err = err
		return
	}
	if t.err = os.Symlink(rel, t.path(name)); os.IsExist(t.err) {
		t.err = nil
	}
}

// remove deletes "address/file" below the function's real directory.
func (t *tree) remove(name string) {
	if t.err != nil {
		return
	}
	addr, rest, _ := strings.Cut(name, "/")
	dir, err := filepath.EvalSymlinks(t.path("sys/bus/pci/devices/" + addr))
	if err != nil {
		t.err = err
		return
	}
	t.err = os.RemoveAll(filepath.Join(dir, filepath.FromSlash(rest)))
}
