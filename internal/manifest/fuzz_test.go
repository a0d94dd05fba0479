package manifest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func fuzzSeeds() []string {
	return []string{
		commented,
		"kind: List\nitems: {a: b}\n",
		"a: &a [*a]\nkind: X\n",
		"apiVersion: v1\nkind: NodeList\nitems:\n# one\n- metadata: {name: a}\n-\n\n- kind: X\n  a: |+\n    b\n\n# end\nmetadata: {}\n",
		"kind: X\nspec: {configuration: {permittedHostDevices: {pciHostDevices: [a, # b\n c]}}} # d\n",
		"kind: X\nbase: &b {permittedHostDevices: {x: y}}\nspec: {configuration: {<<: *b}}",
		"\ufeff---\r\nkind: X\r\nspec:\r\n    configuration: \r\n...\r\n# c\r\n--- {kind: Y}\r\n",
		`{"kind":"List","items":[{"kind":"X","a":"\ud83d\ude00\/"}]}{"kind":"Y"}`,
		"? kind\n: X\nspec: !!map\n  configuration: &c\n    x: >\n      y\n",
	}
}

// FuzzParse holds a written text against the object, whatever was read.
func FuzzParse(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add([]byte(s))
	}
	edits := []Edit{appendEntry, Set{Path: annotation, Value: "x: y"}, RemoveItem{Path: appendEntry.Path, Index: 0}, Delete{Path: Path{"spec", "a"}}}
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, _, err := Parse("f.yaml", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			for n := range len(edits) + 1 {
				out, err := d.Text(edits[:n])
				if err != nil {
					continue
				}
				want, err := ApplyTo(d.Object, edits[:n])
				if err != nil {
					t.Fatal(err)
				}
				again, _, err := Parse("again", out)
				if err != nil || len(again) != 1 {
					t.Fatalf("own output reads as %d documents, %v\n%s", len(again), err, out)
				}
				if !same(again[0].Object, want) {
					t.Errorf("own output reads differently:\n%s\n%s", cmp.Diff(want, again[0].Object), out)
				}
			}
		}
	})
}

// FuzzList holds a List that was read item by item against the same read whole.
func FuzzList(f *testing.F) {
	for _, s := range fuzzSeeds() {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if checkEncoding(data) != nil {
			return
		}
		for _, c := range documents(data) {
			items := parser{file: "f", texts: interned{}, lines: itemLines{}}
			if !items.list(c) {
				continue
			}
			whole := parser{file: "f", texts: interned{}, lines: itemLines{}}
			if err := whole.yaml(c); errors.As(err, new(*lineError)) {
				t.Errorf("read item by item, but not whole: %v", err)
			}
			if diff := cmp.Diff(whole.docs, items.docs, cmpopts.IgnoreUnexported(Document{})); diff != "" {
				t.Errorf("documents (-whole +by item):\n%s", diff)
			}
			if diff := cmp.Diff(whole.skipped, items.skipped); diff != "" {
				t.Errorf("skipped (-whole +by item):\n%s", diff)
			}
		}
	})
}
