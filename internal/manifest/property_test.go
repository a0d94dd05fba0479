package manifest

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

var (
	gates       = Path{"spec", "configuration", "developerConfiguration", "featureGates"}
	pciDevices  = Path{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
	mdevDevices = Path{"spec", "configuration", "permittedHostDevices", "mediatedDevices"}
	annotation  = Path{"metadata", "annotations", "gpuctl.dev/wired"}
)

// drawAdditions returns what wiring does: it only adds.
func drawAdditions(t *rapid.T) []Edit {
	entry := Fields{{"pciVendorSelector", "10DE:1E07"}, {"resourceName", "nvidia.com/X"}, {"externalResourceProvider", true}}
	all := []Edit{
		Append{Path: gates, Value: "HostDevices"},
		Append{Path: pciDevices, Value: entry},
		Append{Path: pciDevices, Value: entry},
		Append{Path: mdevDevices, Value: Fields{{"mdevNameSelector", "GRID T4-1Q"}, {"resourceName", "nvidia.com/GRID_T4-1Q"}}},
		Set{Path: annotation, Value: `{"version":1}`},
	}
	return rapid.Permutation(all).Draw(t, "edits")[:rapid.IntRange(1, len(all)).Draw(t, "number")]
}

// undo returns the edits that take additions to obj back, as removal does.
func undo(t *rapid.T, obj Object, edits []Edit) []Edit {
	var out []Edit
	for _, e := range slices.Backward(edits) {
		path, _ := e.reach()
		before := apply(t, obj, edits[:slices.IndexFunc(edits, func(o Edit) bool { return reflect.DeepEqual(o, e) })])
		if _, isSet := e.(Set); isSet {
			out = append(out, Delete{Path: path})
			path = path[:len(path)-1]
		} else {
			list, _ := Lookup(apply(t, apply(t, obj, edits), out), path)
			out = append(out, RemoveItem{Path: path, Index: len(list.([]any)) - 1})
		}
		for n := len(path); n > 0; n-- {
			now, _ := Lookup(apply(t, apply(t, obj, edits), out), path[:n])
			if m, isMap := now.(map[string]any); isMap && len(m) > 0 {
				break
			}
			if l, isList := now.([]any); isList && len(l) > 0 {
				break
			}
			was, there := Lookup(before, path[:n])
			switch {
			case !there:
				out = append(out, Delete{Path: path[:n]})
			case was == nil:
				out = append(out, Set{Path: path[:n], Value: nil})
			}
		}
	}
	return out
}

func apply(t *rapid.T, obj Object, edits []Edit) Object {
	out, err := ApplyTo(obj, edits)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func parseOne(t *rapid.T, text []byte) Document {
	docs, _, err := Parse("x.yaml", text)
	if err != nil || len(docs) != 1 {
		t.Fatalf("Parse() = %d documents, %v\n%s", len(docs), err, text)
	}
	return docs[0]
}

func TestAddingAndRemovingLeadsBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawDocument(t, false)
		doc := parseOne(t, []byte(text))
		edits := drawAdditions(t)
		if got, anew, err := doc.render(nil); err != nil || anew || string(got) != text {
			t.Fatalf("unedited text (anew %t, error %v):\n%s", anew, err, cmp.Diff(text, string(got)))
		}
		added, anew, err := doc.render(edits)
		if err != nil {
			t.Fatal(err)
		}
		if anew {
			t.Fatalf("written anew:\n%s", text)
		}
		body := strings.TrimPrefix(text, utf8BOM)
		if isOpen([]byte(body)) && !bytes.Equal(closed([]byte(body), false), closed([]byte(body), true)) {
			return // the header of a literal block at the very end has to change
		}
		onlyAdded(t, text, string(added))
		again := parseOne(t, added)
		if diff := cmp.Diff(apply(t, doc.Object, edits), again.Object); diff != "" {
			t.Fatalf("text and object differ (-object +text):\n%s", diff)
		}
		back, anew, err := again.render(undo(t, doc.Object, edits))
		if err != nil || anew {
			t.Fatalf("removed: written anew %t, %v", anew, err)
		}
		if string(back) != text {
			t.Fatalf("adding and removing does not lead back:\n%s\nwith additions:\n%s", cmp.Diff(text, string(back)), added)
		}
	})
}

// onlyAdded fails when a line is gone, but for nulls and empty values beside a
// key that has got lines below now.
func onlyAdded(t *rapid.T, before, after string) {
	bare := strings.NewReplacer(": {}", ":", ": []", ":")
	lines := strings.SplitAfter(after, "\n")
	for _, line := range strings.SplitAfter(before, "\n") {
		i := slices.IndexFunc(lines, func(l string) bool {
			l, line := strings.TrimRight(l, "\r\n"), strings.TrimRight(line, "\r\n")
			return l == line || l == bare.Replace(line)
		})
		if i < 0 {
			t.Fatalf("line %q is gone or has moved:\n%s", line, after)
		}
		lines = lines[i+1:]
	}
}

func TestTextAndObjectAgreeOnAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawDocument(t, true)
		doc := parseOne(t, []byte(text))
		edits := drawAdditions(t)
		for range rapid.IntRange(0, 4).Draw(t, "more") {
			edits = append(edits, drawEdit(t, doc.Object, nil))
		}
		want, err := ApplyTo(doc.Object, edits)
		if err != nil {
			t.Skip()
		}
		out, anew, err := doc.render(edits)
		if err != nil {
			t.Fatal(err)
		}
		if anew {
			t.Fatalf("written anew for %v:\n%s", edits, text)
		}
		if diff := cmp.Diff(want, parseOne(t, out).Object); diff != "" {
			t.Fatalf("text and object differ (-object +text):\n%s", diff)
		}
	})
}

// drawEdit returns an edit of some value that is there.
func drawEdit(t *rapid.T, v any, at Path) Edit {
	m, _ := v.(map[string]any)
	list, isList := v.([]any)
	at = slices.Clone(at)
	if len(m) > 0 && (len(at) == 0 || rapid.Bool().Draw(t, "down")) {
		key := rapid.SampledFrom(sortedKeys(m)).Draw(t, "key")
		return drawEdit(t, m[key], append(at, key))
	}
	switch kind := rapid.IntRange(0, 5).Draw(t, "edit"); {
	case isList && kind < 3 && len(list) > 0:
		return RemoveItem{Path: at, Index: rapid.IntRange(0, len(list)-1).Draw(t, "index")}
	case isList:
		return Append{Path: at, Value: rapid.SampledFrom([]any{"x", nil, true, []any{}, []any{"a", Fields{{"b", "c: d"}}}}).Draw(t, "item")}
	case kind < 2 && at[0] != "kind":
		return Delete{Path: at}
	case kind < 4 && at[0] != "kind":
		return Set{Path: at, Value: rapid.SampledFrom([]any{"x: y", "two\nlines\n", nil, Object{}, Fields{{"b", Fields{{"a", []any{"c"}}}}}, []any{"1", true}}).Draw(t, "value")}
	}
	return Set{Path: append(at[:len(at)-1], "new key"), Value: rapid.SampledFrom([]any{"two\nlines\n", "", "🚀", []any{Object{"a": "b"}}}).Draw(t, "value")}
}

func sortedKeys(m map[string]any) []string {
	var out []string
	for _, f := range fieldsOf(m) {
		out = append(out, f.Key)
	}
	return out
}

func TestParseReadsLikeKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawDocument(t, true)
		sameAsKubernetes(t, []byte(text), parseOne(t, []byte(text)).Object)
	})
}

// sameAsKubernetes fails when sigs.k8s.io/yaml reads something else in the text.
// Numbers may have more digits.
func sameAsKubernetes(t interface{ Fatalf(string, ...any) }, text []byte, got any) {
	data, err := yaml.YAMLToJSON(bytes.TrimPrefix(text, []byte(utf8BOM)))
	if err != nil {
		t.Fatalf("sigs.k8s.io/yaml refuses: %v\n%s", err, text)
	}
	var want any
	if err := json.Unmarshal(data, &want); err != nil {
		t.Fatalf("%v", err)
	}
	mine, err := json.Marshal(got)
	if err != nil {
		t.Fatalf("%v", err)
	}
	var have any
	if err := json.Unmarshal(mine, &have); err != nil {
		t.Fatalf("%v", err)
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Fatalf("read differently (-sigs.k8s.io/yaml +ours):\n%s\n%s", diff, text)
	}
}
