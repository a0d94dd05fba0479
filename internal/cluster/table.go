package cluster

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// ErrNotServed is returned when the cluster does not serve one of gpuctl's kinds.
var ErrNotServed = errors.New("the kind is not installed")

// tableType asks for objects as the API server prints them, by the columns of the CRD.
const tableType = "application/json;as=Table;v=v1;g=meta.k8s.io"

// tableChunk is how many rows one request returns at most, as with kubectl get.
const tableChunk = 500

// Tables reads objects of one of gpuctl's kinds as rows, in the columns that the API
// server prints them in. Make it with [Client.Tables].
type Tables struct {
	server string
	rest   rest.Interface
	query  Query
}

// Query says which objects are asked for.
type Query struct {
	Resource  string // in the plural: "gpudevices"
	Namespace string // "" for all, and for a kind without namespaces
	Name      string // "" for all
	Selector  string // of labels; "" for all
	Whole     bool   // rows have the whole object, not its metadata alone
}

// Tables makes a reader of tables; it does not speak to the cluster yet.
func (c *Client) Tables(q Query) (*Tables, error) {
	scheme := runtime.NewScheme()
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		return nil, err
	}
	config := rest.CopyConfig(c.config)
	config.APIPath, config.GroupVersion = "/apis", &v1alpha1.GroupVersion
	config.NegotiatedSerializer = serializer.NewCodecFactory(scheme).WithoutConversion()
	config.AcceptContentTypes = tableType
	config.Timeout = 0 // it would end a watch
	client, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", c.server, err)
	}
	return &Tables{server: c.server, rest: client, query: q}, nil
}

// Get returns a table of one object, whatever the query's name and selector.
func (t *Tables) Get(ctx context.Context, name string) (*metav1.Table, error) {
	return t.read(ctx, t.request().Name(name))
}

// List returns all rows in one table, read in chunks. When a list takes so long that its
// next chunk has expired, it is read anew in one piece.
func (t *Tables) List(ctx context.Context) (*metav1.Table, error) {
	opts := t.options()
	opts.Limit = tableChunk
	var all *metav1.Table
	for {
		next, err := t.read(ctx, t.request().VersionedParams(&opts, metav1.ParameterCodec))
		switch {
		case apierrors.IsResourceExpired(err) && opts.Continue != "":
			all, opts.Continue, opts.Limit = nil, "", 0
			continue
		case err != nil:
			return nil, err
		case all == nil:
			all = next
		default:
			all.Rows = append(all.Rows, next.Rows...)
			all.ListMeta = next.ListMeta
		}
		if opts.Continue = all.Continue; opts.Continue == "" {
			return all, nil
		}
	}
}

// options select what the query asks for.
func (t *Tables) options() metav1.ListOptions {
	opts := metav1.ListOptions{LabelSelector: t.query.Selector}
	if t.query.Name != "" {
		opts.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, t.query.Name).String()
	}
	return opts
}

func (t *Tables) request() *rest.Request {
	r := t.rest.Get().NamespaceIfScoped(t.query.Namespace, t.query.Namespace != "").Resource(t.query.Resource)
	if t.query.Whole {
		r = r.Param("includeObject", string(metav1.IncludeObject))
	}
	return r
}

func (t *Tables) read(ctx context.Context, r *rest.Request) (*metav1.Table, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	var table metav1.Table
	if err := r.Do(ctx).Into(&table); err != nil {
		return nil, t.explain(err)
	}
	return &table, openRows(&table)
}

// explain tells a kind that is not served from an object that is not there.
func (t *Tables) explain(err error) error {
	if apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w: the cluster at %s does not serve %s", ErrNotServed, t.server, t.query.Resource)
	}
	return err
}

// openRows decodes the objects of rows.
func openRows(table *metav1.Table) error {
	for i := range table.Rows {
		object, err := runtime.Decode(unstructured.UnstructuredJSONScheme, table.Rows[i].Object.Raw)
		if err != nil {
			return fmt.Errorf("read row %d of a table: %w", i, err)
		}
		table.Rows[i].Object.Object = object
	}
	return nil
}
