package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Write packs b into a file that only its owner can read (mode 0600). The file must
// not exist; it is there whole, or not at all.
func Write(path string, b *Bundle) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("write the bundle %s: it exists; remove it, or name another file", path)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("write the bundle: %w", err)
	}
	var archive bytes.Buffer
	if err := b.pack(&archive); err != nil {
		return fmt.Errorf("write the bundle %s: %w", path, err)
	}
	part, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*") // with mode 0600
	if err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	defer func() { _ = os.Remove(part.Name()) }()
	_, err = part.Write(archive.Bytes())
	if err = errors.Join(err, part.Sync(), part.Close()); err != nil {
		return fmt.Errorf("write the bundle: %w", err)
	}
	if err := os.Link(part.Name(), path); err != nil { // unlike a rename it replaces nothing
		return fmt.Errorf("write the bundle: %w", err)
	}
	return nil
}

func (b *Bundle) pack(w io.Writer) error {
	zip := gzip.NewWriter(w)
	out := packer{tar: tar.NewWriter(zip), at: b.About.Packed}
	b.About.Format = format
	out.text("README.txt", []byte(readme))
	out.json("bundle.json", b.About)
	out.objects(b.Docs)
	if len(b.Conditions) > 0 {
		out.json("conditions.json", cleanedAll(b.Conditions))
	}
	for i := range b.Inventory {
		out.json(fmt.Sprintf("hosts/%d.json", i), b.Inventory[i])
	}
	for i := range b.Logs {
		out.json(fmt.Sprintf("logs/%d.json", i), tellingLines(&b.Logs[i]))
	}
	out.json("findings.json", b.Findings)
	return errors.Join(out.err, out.tar.Close(), zip.Close())
}

// packer writes files into an archive; the first error stays.
type packer struct {
	tar *tar.Writer
	at  time.Time
	err error
}

func (p *packer) text(name string, data []byte) {
	if p.err != nil {
		return
	}
	header := &tar.Header{Name: folder + name, Mode: 0o600, Size: int64(len(data)), ModTime: p.at, Format: tar.FormatPAX}
	if p.err = p.tar.WriteHeader(header); p.err == nil {
		_, p.err = p.tar.Write(data)
	}
}

func (p *packer) json(name string, v any) {
	data, err := json.MarshalIndent(v, "", "  ")
	p.err = errors.Join(p.err, err)
	p.text(name, append(data, '\n'))
}

// objects writes a List for each kind.
func (p *packer) objects(docs []manifest.Document) {
	byKind := map[string][]any{}
	tenants := cluster.TenantLabels(docs)
	for i := range docs {
		if object, ok := redact(&docs[i], tenants); ok {
			byKind[docs[i].Kind()] = append(byKind[docs[i].Kind()], object)
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(byKind)) {
		data, err := manifest.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": byKind[kind]})
		p.err = errors.Join(p.err, err)
		p.text("objects/"+strings.ToLower(kind)+".yaml", data)
	}
}

func cleanedAll(objects []manifest.Object) []any {
	var out []any
	for _, o := range objects {
		item := map[string]any{}
		for _, key := range []string{"type", "status", "reason", "message"} {
			if v, ok := o[key].(string); ok {
				item[key] = cluster.Scrub(v)
			}
		}
		out = append(out, item)
	}
	return out
}

// tellingLines empties the lines of a log that say nothing, so that the others keep
// their numbers.
func tellingLines(log *diagnose.Log) diagnose.Log {
	out := diagnose.Log{Name: filepath.Base(log.Name)}
	for _, line := range log.Lines {
		if !diagnose.Telling(line) {
			line = ""
		}
		out.Lines = append(out.Lines, cluster.Scrub(line))
	}
	return out
}
