package manifest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	write := func(path, text string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, path string) {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(target, path); err != nil {
			t.Skip("no symbolic links here:", err)
		}
	}
	write("plain/b.yml", "kind: B\n")
	write("plain/a.yaml", "kind: A\n")
	write("plain/sub.yaml/c.json", `{"kind": "C"}`)
	write("plain/d.txt", "kind: D\n")
	write("mount/..2024/a.yaml", "kind: A\n")
	link("..2024", "mount/..data")
	link(filepath.Join("..data", "a.yaml"), "mount/a.yaml")
	link("plain", "linked")
	link(filepath.Join("..", "plain"), "around/x.yaml")
	link(filepath.Join("..", "around"), "around/self")
	link("missing", "dangling/x.yaml")
	write("empty/a.txt", "")
	write("bad/a.yaml", "a: [\n")

	tests := map[string]struct {
		paths   []string
		want    []string
		wantErr string
	}{
		"files in name order":  {paths: []string{"plain"}, want: []string{"plain/a.yaml A", "plain/b.yml B", "plain/sub.yaml/c.json C"}},
		"mounted ConfigMap":    {paths: []string{"mount"}, want: []string{"mount/a.yaml A"}},
		"linked folder":        {paths: []string{"linked"}, want: []string{"linked/a.yaml A", "linked/b.yml B", "linked/sub.yaml/c.json C"}},
		"link in a folder":     {paths: []string{"around"}, want: []string{"around/x.yaml/a.yaml A", "around/x.yaml/b.yml B", "around/x.yaml/sub.yaml/c.json C"}},
		"stdin and a file":     {paths: []string{"-", "plain/a.yaml"}, want: []string{"- In", "plain/a.yaml A"}},
		"nothing to read":      {paths: []string{"empty"}, wantErr: "read folder empty: it holds no .yaml, .yml or .json file"},
		"missing":              {paths: []string{"none.yaml"}, wantErr: "read none.yaml: no such file or directory"},
		"link that leads away": {paths: []string{"dangling"}, wantErr: "read dangling/x.yaml: no such file or directory"},
		"bad file in a folder": {paths: []string{"bad"}, wantErr: "parse bad/a.yaml: line 1: did not find expected node content"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Load(strings.NewReader("kind: In\n"), tc.paths...)
			if tc.wantErr != "" {
				if err == nil || filepath.ToSlash(err.Error()) != tc.wantErr {
					t.Fatalf("Load() error = %v, want %s", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range docs {
				got = append(got, fmt.Sprintf("%s %s", filepath.ToSlash(d.File), d.Kind()))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Load() (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadErrorsNameThePathOnce(t *testing.T) {
	_, err := readAll(nil, t.TempDir())
	if err == nil || strings.Count(err.Error(), "read ") != 1 {
		t.Errorf("reading a folder as a file: %v", err)
	}
}
