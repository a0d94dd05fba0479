package cluster

import (
	"context"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// page is one page of a list.
type page struct {
	next  string // "" on the last one
	items []manifest.Object
}

// page asks for one page of a kind.
func (c *Client) page(ctx context.Context, namespace string, kind *meta.RESTMapping, opts *metav1.ListOptions) (page, error) {
	root := "/apis"
	if kind.Resource.Group == "" {
		root = "/api"
	}
	path := []string{root, kind.Resource.Group, kind.Resource.Version}
	if namespace != "" {
		path = append(path, "namespaces", namespace)
	}
	got := c.core.Discovery().RESTClient().Get().AbsPath(append(path, kind.Resource.Resource)...).
		SpecificallyVersionedParams(opts, metav1.ParameterCodec, metav1.SchemeGroupVersion).
		SetHeader("Accept", "application/json").Do(ctx)
	if err := got.Error(); err != nil {
		return page{}, err
	}
	body, err := got.Raw()
	if err != nil {
		return page{}, err
	}
	p, err := readPage(body)
	apiVersion, name := kind.GroupVersionKind.ToAPIVersionAndKind()
	for _, item := range p.items {
		if item["kind"] == nil { // items of the core kinds do not say so themselves
			item["apiVersion"], item["kind"] = apiVersion, name
		}
	}
	return p, err
}

// readPage reads what an API server answered. The library is several times as fast as
// the one behind the dynamic client, and a large cluster's pages have many megabytes.
func readPage(body []byte) (page, error) {
	var list struct {
		Metadata struct {
			Continue string `json:"continue"`
		} `json:"metadata"`
		Items []lean `json:"items"`
	}
	if err := json.Unmarshal(body, &list); err != nil {
		return page{}, err
	}
	p := page{next: list.Metadata.Continue}
	for i := range list.Items {
		item := list.Items[i].object()
		if !wholeNumbers(item) {
			return exactPage(body)
		}
		p.items = append(p.items, item)
	}
	return p, nil
}

// lean is an object without the bulk that gpuctl never looks at: it is passed over.
type lean struct {
	Metadata *struct {
		ManagedFields jsontext.Value `json:"managedFields"`
		Rest          map[string]any `json:",embed"`
	} `json:"metadata"`
	Status *struct {
		Images jsontext.Value `json:"images"` // of a Node
		Rest   map[string]any `json:",embed"`
	} `json:"status"`
	Rest map[string]any `json:",embed"`
}

func (l *lean) object() manifest.Object {
	if l.Rest == nil {
		l.Rest = map[string]any{}
	}
	if l.Metadata != nil {
		l.Rest["metadata"] = notNil(l.Metadata.Rest)
	}
	if l.Status != nil {
		l.Rest["status"] = notNil(l.Status.Rest)
	}
	return l.Rest
}

func notNil(m map[string]any) map[string]any {
	if m == nil {
		return map[string]any{}
	}
	return m
}

// exact is up to where a float64 tells whole numbers apart.
const exact = 1 << 53

// wholeNumbers makes an int64 of each number that is one, as the dynamic client does;
// false when one is too large to be told.
func wholeNumbers(v any) bool {
	switch t := v.(type) {
	case map[string]any:
		for key, item := range t {
			if n, isNumber := item.(float64); isNumber {
				item = number(n)
				t[key] = item
			}
			if !wholeNumbers(item) {
				return false
			}
		}
	case []any:
		for i, item := range t {
			if n, isNumber := item.(float64); isNumber {
				item = number(n)
				t[i] = item
			}
			if !wholeNumbers(item) {
				return false
			}
		}
	case float64:
		return math.Abs(t) < exact
	}
	return true
}

func number(n float64) any {
	if n == math.Trunc(n) && math.Abs(n) < exact {
		return int64(n)
	}
	return n
}

// exactPage reads a page as the dynamic client does.
func exactPage(body []byte) (page, error) {
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON(body); err != nil {
		return page{}, err
	}
	p := page{next: list.GetContinue()}
	for _, item := range list.Items {
		p.items = append(p.items, item.Object)
	}
	return p, nil
}
