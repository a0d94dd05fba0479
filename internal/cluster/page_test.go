package cluster

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// TestPage reads pages of lists as the dynamic client does, but for what is dropped.
func TestPage(t *testing.T) {
	for name, text := range map[string]string{
		"of a core kind":     `{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"next"},"items":[{"kind":"Pod","metadata":{"name":"a"}},{"kind":"Pod","metadata":{"name":"b"}}]}`,
		"of a custom kind":   `{"apiVersion":"x/v1","items":[{"kind":"X","metadata":{"name":"a"}}],"kind":"XList","metadata":{"continue":"next"}}`,
		"with nothing in it": `{"kind":"XList","items":[],"metadata":{"continue":"next"}}`,
		"numbers":            `{"kind":"XList","metadata":{},"items":[{"kind":"X","a":1,"b":-2.5,"e":[1,2.5],"f":{"g":0,"h":4503599627370497}}]}`,
		"large numbers":      `{"kind":"XList","metadata":{"continue":"next"},"items":[{"kind":"X","a":9223372036854775807,"b":[9223372036854775808]}]}`,
		"texts":              `{"kind":"XList","metadata":{},"items":[{"kind":"X","a":"q\"\\\u00e9\n","b":null,"c":true,"d":{},"e":[]}]}`,
		"bulk":               `{"kind":"XList","metadata":{},"items":[{"kind":"X","metadata":{"managedFields":[{}],"name":"n"},"status":{"images":[1],"phase":"p"},"spec":{"images":[1]}}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			var want unstructured.UnstructuredList
			if err := want.UnmarshalJSON([]byte(text)); err != nil {
				t.Fatal(err)
			}
			var items []manifest.Object
			for _, u := range want.Items {
				unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
				unstructured.RemoveNestedField(u.Object, "status", "images")
				delete(u.Object, "apiVersion") // the list's own
				items = append(items, u.Object)
			}
			got, err := readPage([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want.GetContinue(), got.next); diff != "" {
				t.Errorf("next page (-dynamic client +ours):\n%s", diff)
			}
			if diff := cmp.Diff(len(items), len(got.items)); diff != "" {
				t.Fatalf("items (-dynamic client +ours):\n%s", diff)
			}
			for i := range items {
				if diff := cmp.Diff(items[i], got.items[i]); diff != "" {
					t.Errorf("item %d (-dynamic client +ours):\n%s", i, diff)
				}
			}
		})
	}
	for _, text := range []string{``, `{"items":[{"a":`, `{"items":[1]}`, `[]`} {
		if got, err := readPage([]byte(text)); err == nil {
			t.Errorf("%q is read as %+v", text, got)
		}
	}
}
