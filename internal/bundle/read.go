package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Is reports whether a file is a bundle, as far as its first bytes tell.
func Is(path string) bool {
	f, err := os.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	magic := make([]byte, 2)
	_, err = io.ReadFull(f, magic)
	return err == nil && bytes.Equal(magic, []byte{0x1f, 0x8b})
}

// Read unpacks a bundle. Files that it does not know are passed over.
func Read(path string) (*Bundle, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("read the bundle: %w", err)
	}
	defer f.Close()
	b, err := unpack(f, path)
	if err != nil {
		return nil, fmt.Errorf("read the bundle %s: %w", path, err)
	}
	return b, nil
}

func unpack(r io.Reader, path string) (*Bundle, error) {
	zip, err := gzip.NewReader(r)
	if err != nil {
		return nil, err
	}
	bounded := &io.LimitedReader{R: zip, N: maxBytes}
	archive := tar.NewReader(bounded)
	b := &Bundle{}
	for files := 0; ; files++ {
		header, err := archive.Next()
		switch {
		case bounded.N <= 0 || files > maxFiles:
			return nil, fmt.Errorf("it unpacks to more than %d MiB or %d files", maxBytes>>20, maxFiles)
		case errors.Is(err, io.EOF):
			if b.About.Format == 0 {
				return nil, errors.New("it is no bundle of gpuctl: it has no bundle.json")
			}
			return b, nil
		case err != nil:
			return nil, err
		case header.Typeflag != tar.TypeReg:
			continue
		}
		data, err := io.ReadAll(archive)
		if err == nil {
			err = b.file(strings.TrimPrefix(header.Name, folder), data, path)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", header.Name, err)
		}
	}
}

// file takes one file of the archive.
func (b *Bundle) file(name string, data []byte, path string) error {
	switch dir, _, _ := strings.Cut(name, "/"); {
	case name == "bundle.json":
		if err := json.Unmarshal(data, &b.About); err != nil {
			return err
		}
		if b.About.Format != format {
			return fmt.Errorf("its format is %d, and this gpuctl reads %d; use the gpuctl that packed it (%s)", b.About.Format, format, b.About.Version)
		}
		return nil
	case name == "conditions.json":
		return json.Unmarshal(data, &b.Conditions)
	case name == "findings.json":
		return json.Unmarshal(data, &b.Findings)
	case dir == "objects":
		docs, _, err := manifest.Parse(path+":"+name, data)
		b.Docs = append(b.Docs, docs...)
		return err
	case dir == "hosts":
		var inv Inventory
		err := json.Unmarshal(data, &inv)
		b.Inventory = append(b.Inventory, inv)
		return err
	case dir == "logs":
		var log diagnose.Log
		err := json.Unmarshal(data, &log)
		b.Logs = append(b.Logs, log)
		return err
	}
	return nil
}
