package manifest

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestTextEdits pins texts before and after edits. Each must be reached without
// writing the text anew.
func TestTextEdits(t *testing.T) {
	gate := Append{Path: gates, Value: "HostDevices"}
	entry := Append{Path: pciDevices, Value: Fields{{"pciVendorSelector", "10DE:1E07"}, {"resourceName", "nvidia.com/X"}}}
	note := Set{Path: annotation, Value: `{"version":1}`}
	tests := map[string]struct {
		before, after string
		edits         []Edit
	}{
		"compact list": {
			before: "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - GPU # keep\n    # after\n",
			edits:  []Edit{gate},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - GPU # keep\n      - HostDevices\n    # after\n",
		},
		"commented-out items stay above": {
			before: "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: # gates\n        - GPU   # gpu\n        # - Sidecar\n\n        # - Root\n    other: 1\n",
			edits:  []Edit{gate},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: # gates\n        - GPU   # gpu\n        # - Sidecar\n\n        # - Root\n        - HostDevices\n    other: 1\n",
		},
		"wide dashes": {
			before: "kind: K\nspec:\n    configuration:\n        permittedHostDevices:\n            pciHostDevices:\n            -   pciVendorSelector: 8086:1521\n                resourceName: intel.com/x\n",
			edits:  []Edit{entry},
			after:  "kind: K\nspec:\n    configuration:\n        permittedHostDevices:\n            pciHostDevices:\n            -   pciVendorSelector: 8086:1521\n                resourceName: intel.com/x\n            -   pciVendorSelector: \"10DE:1E07\"\n                resourceName: nvidia.com/X\n",
		},
		"null with comments": {
			before: "kind: K\nspec:\n  configuration:\n    permittedHostDevices:\n      pciHostDevices: # c1\n        # c2\n      # c3\n      mediatedDevices: null # c4\n",
			edits:  []Edit{entry, Append{Path: mdevDevices, Value: Fields{{"mdevNameSelector", "GRID"}}}},
			after:  "kind: K\nspec:\n  configuration:\n    permittedHostDevices:\n      pciHostDevices: # c1\n        # c2\n      - pciVendorSelector: \"10DE:1E07\"\n        resourceName: nvidia.com/X\n      # c3\n      mediatedDevices: # c4\n      - mdevNameSelector: GRID\n",
		},
		"folded and kept texts": {
			before: "kind: K\nmetadata:\n  annotations:\n    runbook: >\n      Before:\n\n      - tell\n      - read\n        (section 4)\n    kept: |+\n      text\n\n\nspec:\n  configuration: {}\n",
			edits:  []Edit{gate, note},
			after:  "kind: K\nmetadata:\n  annotations:\n    runbook: >\n      Before:\n\n      - tell\n      - read\n        (section 4)\n    kept: |+\n      text\n\n\n    gpuctl.dev/wired: '{\"version\":1}'\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"flow list on the way": {
			before: "kind: K\nspec: {configuration: {x: , developerConfiguration: {featureGates: [GPU, 'Sidecar', A: b]}, y}} # tail\n",
			edits:  []Edit{gate},
			after:  "kind: K\nspec: # tail\n  configuration:\n    x:\n    developerConfiguration:\n      featureGates:\n      - GPU\n      - 'Sidecar'\n      - A: b\n      - HostDevices\n    y:\n",
		},
		"comments in a flow list": {
			before: "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: [ # it's all ]\n        GPU, # gpu\n        # sidecar\n        'it''s', # its\n        # end\n      ] # tail\n",
			edits:  []Edit{gate},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: # tail\n      # it's all ]\n      - GPU # gpu\n      # sidecar\n      - 'it''s' # its\n      - HostDevices\n      # end\n",
		},
		"flow elsewhere stays": {
			before: "kind: K\nstatus: { phase : Deployed,\n  x: [1,2] }\nspec: {}\n",
			edits:  []Edit{gate},
			after:  "kind: K\nstatus: { phase : Deployed,\n  x: [1,2] }\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"flow document": {
			before: "# head\n{kind: K, spec: {configuration: {}}} # tail\n",
			edits:  []Edit{gate},
			after:  "# head\nkind: K\nspec: # tail\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"emoji, CRLF and no end": {
			before: "kind: K # 🚀\r\nmetadata:\r\n  annotations:\r\n    🚀: \"🚀\"   # 🚀\r\nspec:\r\n  configuration: {}",
			edits:  []Edit{note, gate},
			after:  "kind: K # 🚀\r\nmetadata:\r\n  annotations:\r\n    🚀: \"🚀\"   # 🚀\r\n    gpuctl.dev/wired: '{\"version\":1}'\r\nspec:\r\n  configuration:\r\n    developerConfiguration:\r\n      featureGates:\r\n      - HostDevices",
		},
		"literal without an end": {
			before: "kind: K\nx: |\n  text",
			edits:  []Edit{note},
			after:  "kind: K\nx: |-\n  text\nmetadata:\n  annotations:\n    gpuctl.dev/wired: '{\"version\":1}'",
		},
		"literal without an end stays": {
			before: "kind: K\nspec: {}\nx: |\n  text",
			edits:  []Edit{gate},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\nx: |\n  text",
		},
		"beside wide characters": {
			before: "kind: K\né🚀: \"a\" # 🚀\n",
			edits:  []Edit{Set{Path: Path{"é🚀"}, Value: "é"}},
			after:  "kind: K\né🚀: é # 🚀\n",
		},
		"alias elsewhere stays": {
			before: "# top\nkind: K\nmetadata:\n  labels: &l\n    app: x  # keep me\n    yes: \"on\"\nspec:\n  nodeSelector: *l\n  configuration: {}\n",
			edits:  []Edit{gate},
			after:  "# top\nkind: K\nmetadata:\n  labels: &l\n    app: x  # keep me\n    yes: \"on\"\nspec:\n  nodeSelector: *l\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"alias on the way": {
			before: "kind: K\nshared:\n  gates: &g # all\n  - GPU\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: *g # same\n",
			edits:  []Edit{gate},
			after:  "kind: K\nshared:\n  gates: &g # all\n  - GPU\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates: # same\n      - GPU\n      - HostDevices\n",
		},
		"anchor on the way": {
			before: "kind: K\nspec:\n  configuration: &c\n    a: b # c\n  copy: *c # d\n  copies: [*c]\n",
			edits:  []Edit{gate},
			after:  "kind: K\nspec:\n  configuration: &c\n    a: b # c\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n  copy: # d\n    a: b\n  copies: [{\"a\":\"b\"}]\n",
		},
		"merge key on the way": {
			before: "kind: K\nshared: &c\n  developerConfiguration:\n    featureGates: [GPU]\n  a: b\nspec:\n  configuration:\n    # base\n    <<: *c\n    a: own # own\n",
			edits:  []Edit{gate},
			after:  "kind: K\nshared: &c\n  developerConfiguration:\n    featureGates: [GPU]\n  a: b\nspec:\n  configuration:\n    # base\n    developerConfiguration:\n      featureGates:\n      - GPU\n      - HostDevices\n    a: own # own\n",
		},
		"merge key beside the way": {
			before: "kind: K\nshared: &c {a: b}\nspec:\n  configuration:\n    <<: *c\n",
			edits:  []Edit{gate},
			after:  "kind: K\nshared: &c {a: b}\nspec:\n  configuration:\n    <<: *c\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"set in place": {
			before: "kind: K\nmetadata:\n  annotations:\n    gpuctl.dev/wired:   '{\"version\":0}' # ours\n    x: |\n      y\n",
			edits:  []Edit{note, Set{Path: Path{"metadata", "annotations", "x"}, Value: "two\nlines"}},
			after:  "kind: K\nmetadata:\n  annotations:\n    gpuctl.dev/wired: '{\"version\":1}' # ours\n    x: \"two\\nlines\"\n",
		},
		"remove one of several": {
			before: "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      # first\n      - A\n      - B # b\n        # about b\n      # about c\n      - C\n",
			edits:  []Edit{RemoveItem{Path: gates, Index: 1}},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      # first\n      - A\n      # about c\n      - C\n",
		},
		"literal that ends in blanks": {
			before: "kind: K\nspec:\n  x: |\n    a\n        \n\n# c\n",
			edits:  []Edit{Set{Path: Path{"spec", "y"}, Value: "z"}},
			after:  "kind: K\nspec:\n  x: |\n    a\n        \n  \"y\": z\n\n# c\n",
		},
		"remove below kept empty lines": {
			before: "kind: K\nspec:\n  x: |+\n    a\n\n  z: 1\n\n\n  w: 2\n",
			edits:  []Edit{Delete{Path: Path{"spec", "z"}}},
			after:  "kind: K\nspec:\n  x: |+\n    a\n\n  w: 2\n",
		},
		"lists with dashes of their own": {
			before: "kind: K\nspec:\n  other:\n  - a\n  configuration:\n    developerConfiguration:\n      featureGates:\n        -  GPU\n",
			edits:  []Edit{gate, Append{Path: Path{"spec", "configuration", "new"}, Value: "x"}, Append{Path: Path{"spec", "other"}, Value: "b"}},
			after:  "kind: K\nspec:\n  other:\n  - a\n  - b\n  configuration:\n    developerConfiguration:\n      featureGates:\n        -  GPU\n        -  HostDevices\n    new:\n      -  x\n",
		},
		"set what has an anchor or a tag": {
			before: "kind: K\nspec:\n  a: &a # c\n    b: c\n  d: !!str 5 # d\n  e: &e\n    - f\n",
			edits:  []Edit{Set{Path: Path{"spec", "a"}, Value: "x"}, Set{Path: Path{"spec", "d"}, Value: 6}, Set{Path: Path{"spec", "e"}, Value: []any{"g"}}},
			after:  "kind: K\nspec:\n  a: x # c\n  d: 6 # d\n  e:\n    - g\n",
		},
		"merge keys of which the last wins": {
			before: "kind: K\na: &a {x: {w: 1}, z: 1}\nb: &b {x: {w: 2}}\nspec:\n  <<: *a\n  <<: *b\n",
			edits:  []Edit{Set{Path: Path{"spec", "x", "new"}, Value: true}},
			after:  "kind: K\na: &a {x: {w: 1}, z: 1}\nb: &b {x: {w: 2}}\nspec:\n  z: 1\n  x:\n    w: 2\n    new: true\n",
		},
		"delete what aliases stand for": {
			before: "kind: K\nshared:\n  a: &a\n    x: 1\n  b: *a\nspec:\n  c: *a # c\n",
			edits:  []Edit{Delete{Path: Path{"shared"}}},
			after:  "kind: K\nspec:\n  c: # c\n    x: 1\n",
		},
		"remove all": {
			before: "kind: K\nspec:\n  configuration:\n    developerConfiguration: # dev\n      # note\n      featureGates: # gates\n      - A\n  other: 1\n",
			edits:  []Edit{RemoveItem{Path: gates, Index: 0}, Delete{Path: gates}},
			after:  "kind: K\nspec:\n  configuration:\n    developerConfiguration: {} # dev\n      # note\n  other: 1\n",
		},
		"odd keys and quotes": {
			before: "kind: K\n\"spec\" :\n  'configuration':\n    \"x: y\": 'z'\n",
			edits:  []Edit{gate, Delete{Path: Path{"spec", "configuration", "x: y"}}},
			after:  "kind: K\n\"spec\" :\n  'configuration':\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n",
		},
		"document marks and directives": {
			before: "%YAML 1.1\n# licence\n---\n# head\n\nkind: K\nspec: {}\n\n\n",
			edits:  []Edit{gate},
			after:  "%YAML 1.1\n# licence\n---\n# head\n\nkind: K\nspec:\n  configuration:\n    developerConfiguration:\n      featureGates:\n      - HostDevices\n\n\n",
		},
		"indented document": {
			before: "  kind: K\n  spec:\n    a: b\n",
			edits:  []Edit{note},
			after:  "  kind: K\n  spec:\n    a: b\n  metadata:\n    annotations:\n      gpuctl.dev/wired: '{\"version\":1}'\n",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("cr.yaml", []byte(tc.before))
			if err != nil || len(docs) != 1 {
				t.Fatalf("Parse() = %d documents, %v", len(docs), err)
			}
			unedited, anew, err := docs[0].render(nil)
			if err != nil || anew || string(unedited) != tc.before {
				t.Errorf("unedited (anew %t, %v):\n%s", anew, err, cmp.Diff(tc.before, string(unedited)))
			}
			got, anew, err := docs[0].render(tc.edits)
			if err != nil || anew {
				t.Errorf("written anew %t, %v", anew, err)
			}
			if diff := cmp.Diff(strings.SplitAfter(tc.after, "\n"), strings.SplitAfter(string(got), "\n")); diff != "" {
				t.Errorf("Text() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTextWrittenAnew lists what cannot be edited in place; the text is right all
// the same.
func TestTextWrittenAnew(t *testing.T) {
	tests := map[string]struct{ before, after string }{
		"explicit key":          {"? kind\n: K\n? spec\n: {}\n", "kind: K\nspec:\n  new: 1\n"},
		"tag on a key":          {"kind: K\n!!str spec: {} # c\n", "kind: K\nspec:\n  new: 1\n"},
		"merge key wins behind": {"kind: K\nx: &x {new: 0, a: b}\nspec:\n  new: 2\n  <<: *x\n", "kind: K\nspec:\n  a: b\n  new: 1\nx:\n  a: b\n  new: 0\n"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("cr.yaml", []byte(tc.before))
			if err != nil || len(docs) != 1 {
				t.Fatalf("Parse() = %d documents, %v", len(docs), err)
			}
			got, anew, err := docs[0].render([]Edit{Set{Path: Path{"spec", "new"}, Value: 1}})
			if err != nil || !anew {
				t.Errorf("written anew %t, %v", anew, err)
			}
			if diff := cmp.Diff(tc.after, string(got)); diff != "" {
				t.Errorf("Text() (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTextOfItems pins the own texts of what is only a part of a file.
func TestTextOfItems(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"items are dedented": {
			"kind: List\nitems:\n  # the first\n  -   kind: A # a\n      # b\n      x: |\n        y\n       # c\n\n  - # the second\n    kind: B\n    w: \"on\n    the left\"\n    z:\n    - 1\n  # the third\n  -\n    kind: C\n  - {kind: D, a: [b]}\n# about the list\nmetadata: {}\n",
			[]string{"# the first\nkind: A # a\n# b\nx: |\n  y\n # c\n", "# the second\nkind: B\nw: \"on\nthe left\"\nz:\n- 1\n", "# the third\nkind: C\n", "{kind: D, a: [b]}\n"},
		},
		"typed items are completed": {
			"kind: NodeList\napiVersion: v1\nitems:\n- metadata: # m\n    name: a\n- apiVersion: v2\n  spec: {}\n- kind: X\n- kind:\n",
			[]string{"apiVersion: v1\nkind: Node\nmetadata: # m\n  name: a\n", "kind: Node\napiVersion: v2\nspec: {}\n", "kind: X\n", "apiVersion: v1\nkind: Node\n"},
		},
		"kept empty lines stay": {
			"kind: List\nitems:\n- kind: A\n  x: |+\n    y\n\n\n- kind: B\n\n",
			[]string{"kind: A\nx: |+\n  y\n\n\n", "kind: B\n"},
		},
		"anchors of other items are spelt out": {
			"kind: List\nitems:\n- kind: A\n  x: &x {z: 1, w: 2}\n- kind: B\n  x: *x\n",
			[]string{"kind: A\nx:\n  w: 2\n  z: 1\n", "kind: B\nx:\n  w: 2\n  z: 1\n"},
		},
		"documents": {
			"# one\n\n---\nkind: A # a\n---   \n# two\nkind: B\n# end\n...\n# three\n--- # mark\nkind: C\n---\n# nothing\n---\n",
			[]string{"# one\n\n---\nkind: A # a\n", "# two\nkind: B\n# end\n", "# three\n--- # mark\nkind: C\n"},
		},
		"documents without a first mark": {
			"kind: A\n# end\n--- # two\nkind: B\n---\n---\nkind: C\n---",
			[]string{"kind: A\n# end\n", "--- # two\nkind: B\n", "kind: C\n"},
		},
		"JSON is written as YAML": {
			"{\"kind\": \"A\", \"x\": {\"b\": [1.50, \"yes\", \"1\", null, {}, []], \"a\": \"10DE:1E07\"},\n \"text\": \"a\\n\\tb\\n\", \"emoji\": \"\\ud83d\\ude80 \\u00e9 \\/\", \"json\": \"{\\\"a\\\": 1}\"}",
			[]string{"emoji: 🚀 é /\njson: '{\"a\": 1}'\nkind: A\ntext: |\n  a\n  \tb\nx:\n  a: \"10DE:1E07\"\n  b:\n  - 1.50\n  - \"yes\"\n  - \"1\"\n  - null\n  - {}\n  - []\n"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := Parse("f.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for i := range docs {
				text, anew, err := docs[i].render(nil)
				if err != nil || anew {
					t.Errorf("written anew %t, %v", anew, err)
				}
				got = append(got, string(text))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("texts (-want +got):\n%s", diff)
			}
		})
	}
}

// TestLiveText pins the canonical form, with the number types that clients use.
func TestLiveText(t *testing.T) {
	doc := Live("https://cluster", Object{
		"kind": "K", "a": []any{int64(1), 0.5, true, nil, Object{"x": "y", "z": []any{"1"}}, []any{"a", "b"}},
		"odd": []any{"", " a", "- a", "a: b", "a #b", "#a", "'a'", `"a"`, "---", "=", "0o17", "1e400", "a\tb", "a\u2028b", "é\u0000", "\n", "a\n b\n\n"},
	})
	got, anew, err := doc.render([]Edit{Append{Path: Path{"a"}, Value: "10e7"}})
	if err != nil || anew {
		t.Errorf("written anew %t, %v", anew, err)
	}
	want := `a:
- 1
- 0.5
- true
- null
- x: "y"
  z:
  - "1"
- - a
  - b
- "10e7"
kind: K
odd:
- ""
- ' a'
- '- a'
- 'a: b'
- 'a #b'
- '#a'
- '''a'''
- '"a"'
- '---'
- "="
- "0o17"
- "1e400"
- "a\tb"
- "a\u2028b"
- "é\u0000"
- "\n"
- |+
  a
   b

`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("Text() (-want +got):\n%s", diff)
	}
	if _, err := new(Document).Text([]Edit{Set{Path: Path{"x"}, Value: make(chan int)}}); err == nil {
		t.Error("Text() takes a value that YAML does not have")
	}
	big := Live("https://cluster", Object{"kind": "K", "x": float64(1 << 62)})
	if text, err := big.Text(nil); err != nil || string(text) != "kind: K\nx: 4611686018427388000\n" {
		t.Errorf("Text() = %q, %v", text, err)
	}
}
