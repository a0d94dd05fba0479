package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	p, err := readPage(string(body))
	apiVersion, name := kind.GroupVersionKind.ToAPIVersionAndKind()
	for _, item := range p.items {
		if item["kind"] == nil { // items of the core kinds do not say so themselves
			item["apiVersion"], item["kind"] = apiVersion, name
		}
	}
	return p, err
}

// readPage reads what an API server answered.
func readPage(body string) (p page, err error) {
	d := decoder{text: body}
	err = d.fields(func(key string) error {
		switch key {
		case "metadata":
			meta, err := d.object(elsewhere)
			p.next, _ = meta["continue"].(string)
			return err
		case "items":
			if d.space() == 'n' {
				return d.word("null")
			}
			return d.items(func() error {
				item, err := d.object(top)
				p.items = append(p.items, item)
				return err
			})
		default:
			return d.skip()
		}
	})
	return p, err
}
