package manifest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// TestParseErrors pins that problems are found, with their line in the file.
func TestParseErrors(t *testing.T) {
	deep := strings.Repeat("[", maxDepth+1) + strings.Repeat("]", maxDepth+1)
	bomb := "kind: K\na0: &a0 [x, x]\n"
	for i := range 30 {
		bomb += fmt.Sprintf("a%d: &a%d [*a%d, *a%d]\n", i+1, i+1, i, i)
	}
	merges := "kind: K\na0: &a0 {x: y}\n"
	for i := range 30 {
		merges += fmt.Sprintf("a%d: &a%d {<<: [*a%d, *a%d]}\n", i+1, i+1, i, i)
	}
	tests := map[string]struct{ text, want string }{
		"no YAML":                       {"kind: Node\n\tx: 1\n", "line 2: found a tab character that violates indentation"},
		"indentation":                   {"a: 1\nb:\n  c: 1\n d: 2\n", "line 4: did not find expected key"},
		"first line":                    {"a: \"\\q\"\n", "line 1: found unknown escape character"},
		"open list":                     {"a: 1\nb: [1, 2\nc: 3\n", "line 3: did not find expected ',' or ']'"},
		"missing colon":                 {"a: 1\nfoo\nb: 1\n", "line 2: could not find expected ':'"},
		"tab in a literal":              {"a: 1\nb: |\n x\n\ty\nc: 2\n", "line 4: found a tab character where an indentation space is expected"},
		"unknown anchor":                {"a: 1\nb: *x\n", "line 2: unknown anchor 'x' referenced"},
		"control character":             {"a: 1\r\nb: \x01\n", "line 2: control characters are not allowed"},
		"second document":               {"kind: A\n---\nkind: B\n  x: 1\n", "line 4: mapping values are not allowed in this context"},
		"duplicate key":                 {"# c\n\nkind: Node\nspec:\n  a: 1\n  b:\n  a: 2\n", `line 7: key "a" already set in map`},
		"duplicate beside a merge":      {"kind: K\na: &a {x: 1}\nb: {<<: *a, x: 2,\n x: 3}\n", `line 4: key "x" already set in map`},
		"duplicate in a list":           {"kind: List\nitems:\n- kind: A\n- kind: B\n  x: {a: 1,\n   a: 2}\n", `line 6: key "a" already set in map`},
		"duplicate by another name":     {"kind: K\nx:\n  0x10: a\n  16: b\n", `line 4: key "16" already set in map`},
		"null key":                      {"kind: K\nx:\n  ~: a\n", `line 3: a key must be text, it is "~"`},
		"mapping as a key":              {"kind: K\nx:\n  ? {a: b}\n  : c\n", "line 3: a key must be text, it is a mapping or a list"},
		"anchor in itself":              {"kind: K\nx: &a\n- *a\n", `line 3: anchor "a" contains itself`},
		"merge of a text":               {"kind: K\nx:\n  <<: a\n", "line 3: a merge key needs a mapping, or a list of mappings"},
		"alias bomb":                    {bomb, "aliases stand for more than 100000 values"},
		"merge bomb":                    {merges, "aliases stand for more than 100000 values"},
		"too deep":                      {"kind: K\nx: " + deep, "line 2: nested deeper than 1000 levels"},
		"too deep in JSON":              {"{\"kind\": \"K\",\n\"x\": " + deep + "}", "line 2: nested deeper than 1000 levels"},
		"UTF-16":                        {"\xff\xfek\x00", "it is UTF-16 text; save it as UTF-8"},
		"big-endian UTF-16":             {"\xfe\xff\x00k", "it is UTF-16 text; save it as UTF-8"},
		"Latin-1":                       {"kind: K\nname: caf\xe9\n", "line 2: it is no UTF-8 text"},
		"duplicate in a later document": {"kind: A\n---\nkind: B\nkind: C\n", `line 4: key "kind" already set in map`},
		"duplicate in a later object":   {"{\"kind\": \"A\"}\n{\"kind\": \"\\/\", \"kind\": \"B\"}", `line 2: key "kind" already set in map`},
		"duplicate key in JSON":         {"{\n\"kind\": \"K\",\n\"x\": {\"a\": 1,\n\"a\": 2}}", `line 4: key "a" already set in map`},
		"broken JSON":                   {"{\n\"kind\": \"K\",\n\"x\": tru]", "line 3: invalid character"},
		"JSON that ends early":          {"{\"kind\": \"K\",\n\"x\": [1", "line 2: the JSON text ends too early"},
		"second object of JSON":         {"{\"kind\": \"K\"}\n{\"kind\": }", "line 2: invalid character '}'"},
		"flow mapping that is no JSON":  {"{kind: K,\n x: [}", "line 2: did not find expected node content"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, err := Parse("f.yaml", []byte(tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), "parse f.yaml: ") || !strings.Contains(err.Error(), tc.want) {
				t.Fatalf("Parse() error = %v, want %q", err, tc.want)
			}
			if strings.Count(err.Error(), "f.yaml") != 1 || strings.Count(err.Error(), "line ") > 1 {
				t.Errorf("Parse() error %q names file or line twice", err)
			}
		})
	}
}

// TestParseJSON reads what is JSON, but not YAML 1.1.
func TestParseJSON(t *testing.T) {
	text := "\ufeff\n{\n\t\"kind\": \"List\",\n\t\"items\": [\n\t\t{\"kind\": \"A\", \"x\": \"\\ud83d\\ude80\\/\\u00e9\"},\n\t\tnull,\n\t\t{\"kind\": \"B\", \"x\": 1.50}\n\t]\n}{\"kind\": \"C\",\n\"x\": 12345678901234567890123}\n---\n{\"kind\":\"D\",\"x\":\"\\/\"}\n[]\n"
	docs, skipped, err := Parse("f.json", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range docs {
		got = append(got, fmt.Sprintf("%d %s %v", d.Line, d.Kind(), d.Object["x"]))
	}
	for _, s := range skipped {
		got = append(got, s.String())
	}
	want := []string{"5 A 🚀/é", "7 B 1.50", "9 C 12345678901234567890123", "12 D /", "f.json:13: skipped, it is no Kubernetes object (not a mapping)"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Parse() (-want +got):\n%s", diff)
	}
}

func TestParseLists(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"in blocks":       {"kind: List\nitems:\n# c\n- kind: A\n- # c\n  kind: B\n-\n- 1\n", []string{"4 A", "6 B", "f:8: skipped, it is no Kubernetes object (not a mapping)"}},
		"in flow style":   {"kind: List\nitems: [{kind: A},\n {kind: B}]\n", []string{"2 A", "3 B"}},
		"of lists":        {"kind: List\nitems:\n- kind: List\n  items:\n  - kind: A\n  - kind: BList\n    items:\n    - {}\n", []string{"5 A", "8 B"}},
		"with aliases":    {"kind: List\nitems:\n- kind: &k A\n- kind: *k\n", []string{"3 A", "4 A"}},
		"items first":     {"items:\n  - kind: A\nkind: List\n", []string{"2 A"}},
		"quoted dashes":   {"kind: List\nitems:\n- kind: A\n  x: \"a\n- kind: B\"\n", []string{"3 A"}},
		"items a mapping": {"kind: List\nitems: {a: {kind: A}}\n", []string{"f:1: skipped, it is a List whose items are no list"}},
		"items a text":    {"kind: List\nitems: foo\n", []string{"f:1: skipped, it is a List whose items are no list"}},
		"no items":        {"kind: List\n---\nkind: List\nitems:\n---\nkind: List\nitems: []\n", nil},
		"not a list":      {"kind: NodeList\nitems: {}\n---\nkind: Recipe\nitems:\n- kind: A\n", []string{"1 NodeList", "4 Recipe"}},
		"nearly JSON":     {"{\"kind\": \"A\"} # c\n", []string{"1 A"}},
		"typed":           {"kind: NodeList\napiVersion: v1\nitems:\n- apiVersion: v2\n- kind: X\n- kind:\n", []string{"4 Node", "5 X", "6 Node"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, skipped, err := Parse("f", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, d := range docs {
				got = append(got, fmt.Sprintf("%d %s", d.Line, d.Kind()))
			}
			for _, s := range skipped {
				got = append(got, s.String())
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestMergeKeysReadLikeKubernetes: the later of equal keys wins.
func TestMergeKeysReadLikeKubernetes(t *testing.T) {
	for name, text := range map[string]string{
		"own key behind":  "x: &x {a: 1, b: 2}\ny: {<<: *x, a: 3}\n",
		"own key before":  "x: &x {a: 1, b: 2}\ny: {a: 3, <<: *x}\n",
		"list":            "x: [&p {a: 1, b: 1}, &q {a: 2, c: 2}]\ny: {<<: [*p, *q, {d: 4}]}\n",
		"two":             "x: [&p {a: 1, b: 1}, &q {a: 2, c: 2}]\ny:\n  <<: *p\n  <<: *q\n",
		"nested":          "x: &p {a: 1}\nz: &q {<<: *p, b: 2}\ny: {<<: *q}\n",
		"quoted is a key": "x: {\"<<\": {a: 1}}\n",
	} {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("f.yaml", []byte("kind: K\n"+text))
			if err != nil {
				t.Fatal(err)
			}
			sameAsKubernetes(t, []byte("kind: K\n"+text), docs[0].Object)
		})
	}
}

// TestManyDocumentsAreSplit holds the own split of a file against its documents
// read alone.
func TestManyDocumentsAreSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var file string
		var want []string
		for i := range rapid.IntRange(1, 4).Draw(t, "documents") {
			text := strings.TrimPrefix(drawDocument(t, false), utf8BOM)
			if i > 0 {
				text = strings.Replace(text, "---", "# mark", 1)
				file += "---\n"
			}
			if isOpen([]byte(text)) {
				text += "\n"
			}
			file += text
			want = append(want, text)
		}
		docs, _, err := Parse("f.yaml", []byte(file))
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for i := range docs {
			text, err := docs[i].Text(nil)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, string(text))
			if line := strings.Split(file, "\n")[docs[i].Line-1]; !strings.HasPrefix(line, "apiVersion:") {
				t.Errorf("line %d of document %d is %q", docs[i].Line, i, line)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("documents (-want +got):\n%s", diff)
		}
	})
}
