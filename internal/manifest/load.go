package manifest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// maxFileBytes bounds one input file. A dump of a large cluster's Nodes fits;
// a core file given by mistake does not.
const maxFileBytes = 256 << 20

// Load reads every document below the given paths: files, or folders whose
// *.yaml, *.yml and *.json files are read in name order, subfolders included.
// "-" is stdin. Lists are unpacked. A document that is no Kubernetes object is
// returned as skipped; text that is no YAML is an error that names file and line.
func Load(stdin io.Reader, paths ...string) ([]Document, []Skipped, error) {
	var docs []Document
	var skipped []Skipped
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			return nil, nil, err
		}
		for _, file := range files {
			data, err := readAll(stdin, file)
			if err != nil {
				return nil, nil, err
			}
			d, s, err := Parse(file, data)
			if err != nil {
				return nil, nil, err
			}
			docs, skipped = append(docs, d...), append(skipped, s...)
		}
	}
	return docs, skipped, nil
}

// expand returns the files that a path stands for.
func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, readError(path, err)
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	files, err := manifestsIn(path, map[string]bool{})
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("read folder %s: it holds no .yaml, .yml or .json file", path)
	}
	return files, nil
}

// manifestsIn returns a folder's manifests. Links are followed, a folder is read
// once. Names that start with ".." are the copies behind a mounted ConfigMap or
// Secret: its files are links into them, and would be read twice.
func manifestsIn(folder string, seen map[string]bool) ([]string, error) {
	target, err := filepath.EvalSymlinks(folder)
	if err != nil {
		return nil, readError(folder, err)
	}
	if seen[target] {
		return nil, nil
	}
	seen[target] = true
	entries, err := os.ReadDir(folder)
	if err != nil {
		return nil, readError(folder, err)
	}
	var files []string
	for _, e := range entries {
		path := filepath.Join(folder, e.Name())
		wanted := slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path))
		info, err := os.Stat(path)
		switch {
		case strings.HasPrefix(e.Name(), ".."):
		case err != nil && wanted:
			return nil, readError(path, err)
		case err != nil:
		case info.IsDir():
			below, err := manifestsIn(path, seen)
			if err != nil {
				return nil, err
			}
			files = append(files, below...)
		case wanted && info.Mode().IsRegular():
			files = append(files, path)
		}
	}
	return files, nil
}

// readError names the path once: errors of package os name it themselves.
func readError(path string, err error) error {
	if pe := (*fs.PathError)(nil); errors.As(err, &pe) {
		err = pe.Err
	}
	return fmt.Errorf("read %s: %w", path, err)
}

func readAll(stdin io.Reader, file string) ([]byte, error) {
	r, size := stdin, int64(0)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, readError(file, err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
			size = min(info.Size(), maxFileBytes)
		}
		r = f
	}
	var buf bytes.Buffer
	buf.Grow(int(size) + bytes.MinRead) // a large file is not copied while it is read
	if _, err := buf.ReadFrom(io.LimitReader(r, maxFileBytes+1)); err != nil {
		return nil, readError(file, err)
	}
	if buf.Len() > maxFileBytes {
		return nil, fmt.Errorf("read %s: larger than %d MiB; give the objects it needs only", file, maxFileBytes>>20)
	}
	return buf.Bytes(), nil
}
