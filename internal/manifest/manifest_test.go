package manifest

import (
	"bytes"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const commented = `# who may use what
apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata:
    name: kubevirt # ours
spec:
    configuration:
        permittedHostDevices:
            pciHostDevices: # none yet
            usb:
                - resourceName: a/b
                  selectors: [{vendor: "10c4", product: 0102}]
`

var appendEntry = Append{
	Path:  Path{"spec", "configuration", "permittedHostDevices", "pciHostDevices"},
	Value: Fields{{"pciVendorSelector", "10DE:1E07"}, {"resourceName", "nvidia.com/X"}, {"externalResourceProvider", true}},
}

func TestTextKeepsWhatEditsDoNotTouch(t *testing.T) {
	docs, skipped, err := Parse("cr.yaml", []byte(commented))
	if err != nil || len(docs) != 1 || len(skipped) != 0 {
		t.Fatalf("Parse() = %d documents, %v, %v", len(docs), skipped, err)
	}
	got, err := docs[0].Text([]Edit{
		appendEntry,
		Append{Path: Path{"spec", "configuration", "developerConfiguration", "featureGates"}, Value: "HostDevices"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(commented, "pciHostDevices: # none yet\n", `pciHostDevices: # none yet
                - pciVendorSelector: "10DE:1E07"
                  resourceName: nvidia.com/X
                  externalResourceProvider: true
`, 1) + `        developerConfiguration:
            featureGates:
                - HostDevices
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Text() (-want +got):\n%s", diff)
	}
}

// TestTextKeepsValues holds the text against the object where encoding it anew
// could change a value, and against itself when it is read again.
func TestTextKeepsValues(t *testing.T) {
	const spec = "spec:\n    configuration: {}\n"
	tests := map[string]string{
		"folded, more indented":   "kind: K\nmetadata:\n  annotations:\n    a: >\n      one\n        two\n\n      three\n",
		"folded, kept":            "kind: K\nmetadata:\n  annotations:\n    a: >+\n      one\n\n\n  name: n\n",
		"literal, kept":           "kind: K\nmetadata:\n  annotations:\n    a: |+\n      one\n\n  name: n\n",
		"flow nulls":              "{kind: K, spec: {x: , y}}\n",
		"emoji":                   "kind: K\nmetadata: {annotations: {a: \"🚀\"}}\n",
		"four columns":            "kind: K\n" + spec + "    list:\n    - a\n    - b:\n          c: d\n",
		"four columns, indented":  "kind: K\n" + spec + "    list:\n        - a\n",
		"aliases":                 "kind: K\nmetadata: {labels: &l {a: b}}\nspec: {sel: *l}\n",
		"comments in all places":  "# licence\n\n# about\nkind: K # k\n\n# before spec\nspec:\n  # inside\n  a: 1 # one\n# foot\n",
		"document with a comment": "--- # first\nkind: K\nspec: {a: 1}\n",
	}
	edits := []Edit{appendEntry, Set{Path: Path{"metadata", "annotations", "gpuctl.dev/wired"}, Value: "{}"}}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("x.yaml", []byte(text))
			if err != nil || len(docs) != 1 {
				t.Fatalf("Parse() = %v, %v", docs, err)
			}
			want, err := ApplyTo(docs[0].Object, edits)
			if err != nil {
				t.Fatal(err)
			}
			first, err := docs[0].Text(edits)
			if err != nil {
				t.Fatal(err)
			}
			again, _, err := Parse("again.yaml", first)
			if err != nil || len(again) != 1 {
				t.Fatalf("read back: %v\n%s", err, first)
			}
			if diff := cmp.Diff(want, again[0].Object); diff != "" {
				t.Errorf("text and object differ (-object +text):\n%s\n%s", diff, first)
			}
			second, err := again[0].Text(nil)
			if err != nil || !bytes.Equal(second, first) {
				t.Errorf("read again it changes: %v\n%s", err, cmp.Diff(string(first), string(second)))
			}
			for _, comment := range []string{"# licence", "# about", "# k", "# before spec", "# inside", "# one", "# foot"} {
				if strings.Contains(text, comment) && !strings.Contains(string(first), comment) {
					t.Errorf("comment %q is lost:\n%s", comment, first)
				}
			}
			if !strings.Contains(string(first), `"10DE:1E07"`) {
				t.Errorf("the selector is not quoted:\n%s", first)
			}
		})
	}
}

func TestTextAndObjectAgree(t *testing.T) {
	tests := map[string]string{
		"block":       commented,
		"empty":       "kind: KubeVirt\n",
		"flow":        "{kind: KubeVirt, spec: {configuration: {}}}",
		"json":        `{"kind":"KubeVirt","spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector":"8086:*"}]}}}}`,
		"null spec":   "kind: KubeVirt\nspec:\n",
		"alias":       "kind: KubeVirt\nx: &a {permittedHostDevices: {pciHostDevices: [{resourceName: a/b}]}}\nspec: {configuration: *a}\n",
		"merge key":   "kind: KubeVirt\nx: &a {permittedHostDevices: {pciHostDevices: [{resourceName: a/b}]}}\nspec: {configuration: {<<: *a}}\n",
		"odd scalars": "kind: KubeVirt\nspec: {a: yes, b: 0102, c: 1e07, d: 2024-01-01, e: ~, f: 12345678901234567890}\n",
	}
	edits := []Edit{
		appendEntry, appendEntry,
		Set{Path: Path{"metadata", "annotations", "gpuctl.dev/wired"}, Value: `{"version":1}`},
		RemoveItem{Path: appendEntry.Path, Index: 0},
		Delete{Path: Path{"metadata", "none", "there"}},
		Delete{Path: Path{"metadata", "annotations", "gpuctl.dev/wired"}},
	}
	for name, text := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("x.yaml", []byte(text))
			if err != nil || len(docs) != 1 {
				t.Fatalf("Parse() = %v, %v", docs, err)
			}
			for n := range len(edits) + 1 {
				want, err := ApplyTo(docs[0].Object, edits[:n])
				if err != nil {
					t.Fatal(err)
				}
				out, err := docs[0].Text(edits[:n])
				if err != nil {
					t.Fatal(err)
				}
				again, _, err := Parse("out.yaml", out)
				if err != nil || len(again) != 1 {
					t.Fatalf("read back: %v\n%s", err, out)
				}
				if diff := cmp.Diff(want, again[0].Object); diff != "" {
					t.Errorf("after %d edits text and object differ (-object +text):\n%s", n, diff)
				}
			}
		})
	}
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		text     string
		wantRefs []string
		wantSkip []string
		wantErr  string
	}{
		"list is unpacked":         {text: "kind: List\nitems:\n- {kind: Node, metadata: {name: a}}\n-\n- {kind: VirtualMachine, metadata: {name: b, namespace: t}}\n", wantRefs: []string{"Node a", "VirtualMachine t/b"}},
		"typed list is completed":  {text: "kind: NodeList\napiVersion: v1\nitems:\n- {metadata: {name: a}}\n", wantRefs: []string{"Node a"}},
		"no kind":                  {text: "---\n# nothing\n---\ndevices: []\n---\n- 1\n", wantSkip: []string{"f.yaml:4: skipped, it is no Kubernetes object (no kind)", "f.yaml:6: skipped, it is no Kubernetes object (not a mapping)"}},
		"byte order mark":          {text: "\ufeffkind: Node\n", wantRefs: []string{"Node "}},
		"kubectl describe":         {text: "Name:         trainer\nEvents:\n  Type  Reason\n  ----  ------\n  Warning  SyncFailed  server error: x\n", wantErr: "this is what kubectl describe prints"},
		"not YAML":                 {text: "kind: Node\n\tx: 1\n", wantErr: "parse f.yaml: line 2"},
		"duplicate key":            {text: "kind: Node\nspec: {a: 1, a: 2}\n", wantErr: `line 2: key "a" already set`},
		"duplicate key further on": {text: "kind: Node\n---\nkind: Node\nspec: {a: 1, a: 2}\n", wantErr: `line 4: key "a" already set`},
		"items that are no list":   {text: "kind: NodeList\napiVersion: v1\nitems: {a: b}\n", wantRefs: []string{"NodeList "}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, skipped, err := Parse("f.yaml", []byte(tc.text))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) || !strings.Contains(err.Error(), "f.yaml") {
					t.Fatalf("Parse() error = %v, want one with %q and the file", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var refs, skip []string
			for _, d := range docs {
				refs = append(refs, d.Ref())
			}
			for _, s := range skipped {
				skip = append(skip, s.String())
			}
			if diff := cmp.Diff(tc.wantRefs, refs); diff != "" {
				t.Errorf("documents (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.wantSkip, skip); diff != "" {
				t.Errorf("skipped (-want +got):\n%s", diff)
			}
		})
	}
}

func TestApplyToRefusesOtherShapes(t *testing.T) {
	obj := Object{"spec": Object{"list": []any{"a"}, "text": "x"}}
	tests := map[string]Edit{
		"append to text":    Append{Path: Path{"spec", "text"}, Value: "b"},
		"append below list": Append{Path: Path{"spec", "list", "x"}, Value: "b"},
		"set below text":    Set{Path: Path{"spec", "text", "x"}, Value: "b"},
		"remove beyond end": RemoveItem{Path: Path{"spec", "list"}, Index: 1},
	}
	for name, edit := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := ApplyTo(obj, []Edit{edit}); err == nil || !strings.Contains(err.Error(), "spec.") {
				t.Errorf("ApplyTo() error = %v, want one that names the path", err)
			}
			doc := Live("x", Object{"kind": "K", "spec": obj["spec"]})
			if _, err := doc.Text([]Edit{edit}); err == nil || !strings.Contains(err.Error(), "spec.") {
				t.Errorf("Text() error = %v, want one that names the path", err)
			}
		})
	}
}

func TestApplyToCopies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		obj := Object{"list": []any{}}
		for _, v := range rapid.SliceOf(rapid.String()).Draw(rt, "items") {
			obj["list"] = append(obj["list"].([]any), v)
		}
		before := DeepCopy(obj)
		if _, err := ApplyTo(obj, []Edit{Append{Path: Path{"list"}, Value: "x"}, Append{Path: Path{"a", "b"}, Value: 1}}); err != nil {
			rt.Fatal(err)
		}
		if diff := cmp.Diff(before, any(obj)); diff != "" {
			rt.Errorf("the input changed:\n%s", diff)
		}
	})
}
