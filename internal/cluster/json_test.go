package cluster

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/json"
)

func decoderSeeds() []string {
	return []string{
		`{"a":1,"b":-2.5e3,"c":[true,false,null,{}],"d":{"e":"x"}}`,
		` { "a" : [ ] , "b" : "q\"\\\u00e9\n" } `,
		`{"big":9223372036854775807,"bigger":9223372036854775808,"twice":1,"twice":2}`,
		`{"text":"ends in a backslash\\","next":"ü"}`,
		`{"metadata":{"name":"n","managedFields":[{"f:a":{}}]},"status":{"images":["i\"]}"],"phase":"p"},"spec":{"images":[1],"metadata":{"managedFields":1}}}`,
	}
}

func FuzzDecoder(f *testing.F) {
	for _, seed := range decoderSeeds() {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var want map[string]any
		if !utf8.ValidString(text) || json.Unmarshal([]byte(text), &want) != nil || want == nil {
			t.Skip("what is no JSON, no API server sends")
		}
		unstructured.RemoveNestedField(want, "metadata", "managedFields")
		unstructured.RemoveNestedField(want, "status", "images")
		d := decoder{text: text}
		got, err := d.object(top)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%q (-library +ours):\n%s", text, diff)
		}
	})
}

func TestDecoderRefuses(t *testing.T) {
	for _, text := range []string{``, `{`, `{"a"`, `{"a":`, `{"a":"b`, `{"a":1`, `{"a":1,}`, `{"a" 1}`, `{"a":[1 2]}`, `{"a":nul}`, `{"a":-}`, `[1]`, `{1:2}`, `{"metadata":{"managedFields":[`} {
		d := decoder{text: text}
		if got, err := d.object(top); err == nil {
			t.Errorf("%q is read as %v", text, got)
		}
	}
}

func TestPage(t *testing.T) {
	for name, text := range map[string]string{
		"of a core kind":     `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"next"},"items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}]}`,
		"of a custom kind":   `{"apiVersion":"x/v1","items":[{"metadata":{"name":"a"}},{"metadata":{"name":"b"}}],"kind":"XList","metadata":{"continue":"next"}}`,
		"with nothing in it": `{"items":null,"metadata":{"continue":"next"}}`,
	} {
		t.Run(name, func(t *testing.T) {
			p, err := readPage(text)
			if err != nil {
				t.Fatal(err)
			}
			if n := len(p.items); p.next != "next" || n != 0 && n != 2 {
				t.Errorf("got %d items, and next %q", n, p.next)
			}
		})
	}
	if _, err := readPage(`{"items":[{"a":`); err == nil {
		t.Error("half a page is read")
	}
}
