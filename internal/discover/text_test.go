package discover

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFromText reads machines from public reports. Each file holds the reason,
// the pasted files and what is expected of them.
func TestFromText(t *testing.T) {
	files, err := filepath.Glob("testdata/pasted/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no pasted text: %v", err)
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			data, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			part := sections(string(data))
			got, warnings, err := FromText(Pasted{
				Lspci: File{Name: "lspci.txt", Data: part["lspci.txt"]},
				IOMMU: File{Name: "iommu.tsv", Data: part["iommu.tsv"]},
				VF:    File{Name: "vf.tsv", Data: part["vf.tsv"]},
			})
			if err != nil {
				t.Fatal(err)
			}
			result := strings.Join(append(summary(got), warnings...), "\n") + "\n"
			if *update {
				rewrite(t, path, string(data), result)
				return
			}
			if diff := cmp.Diff(string(part["want.txt"]), result); diff != "" {
				t.Errorf("FromText() (-want +got):\n%s", diff)
			}
		})
	}
}

var update = flag.Bool("update", false, "rewrite want.txt in testdata/pasted")

func rewrite(t *testing.T, path, data, result string) {
	t.Helper()
	head, _, _ := strings.Cut(data, "-- want.txt --\n")
	if err := os.WriteFile(path, []byte(head+"-- want.txt --\n"+result), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sections splits text at "-- name --" lines. A section may be empty, which is
// not the same as missing.
func sections(data string) map[string][]byte {
	out := map[string][]byte{}
	name := ""
	for line := range strings.Lines(data) {
		if n, ok := strings.CutPrefix(strings.TrimSpace(line), "-- "); ok && strings.HasSuffix(n, " --") {
			name = strings.TrimSuffix(n, " --")
			out[name] = []byte{}
			continue
		}
		out[name] = append(out[name], line...)
	}
	return out
}

func TestFromTextNamesFiles(t *testing.T) {
	good := File{Name: "lspci.txt", Data: text(gpuLine)}
	for name, tc := range map[string]struct {
		in   Pasted
		want string
	}{
		"lspci": {in: Pasted{Lspci: File{Name: "a.txt", Data: text("nothing")}}, want: `a.txt: parse lspci text: no line starts with a PCI address; paste the output of "lspci -nnk"`},
		"iommu": {in: Pasted{Lspci: good, IOMMU: File{Name: "b.tsv", Data: text("18:00.0 40", "18:00.1")}}, want: `b.tsv: parse IOMMU groups: line 2: "18:00.1": want an address and a group, as in "0000:18:00.0 40"`},
		"vf":    {in: Pasted{Lspci: good, VF: File{Name: "c.tsv", Data: text("18:00.0 x 1")}}, want: `c.tsv: parse virtual functions: line 1: "18:00.0 x 1": want a virtual function, as in "0000:3b:00.4 physfn=0000:3b:00.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := FromText(tc.in)
			if err == nil || err.Error() != tc.want {
				t.Errorf("FromText() error\n%v\nwant\n%s", err, tc.want)
			}
		})
	}
}
