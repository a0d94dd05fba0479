package cluster

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Reader reads objects of a cluster, or of documents that stand for one.
type Reader = client.Reader

// Reader reads the cluster itself, past all caches.
func (c *Client) Reader() (Reader, error) {
	r, err := client.New(c.config, client.Options{Scheme: CacheOptions().Scheme, Mapper: c.mapper})
	return r, c.Explain(err)
}

// Documents are documents that are read as a cluster is. Of selectors the namespace and
// the labels count. It reads the kinds that [LauncherOf] does, and devices and VMIs.
type Documents struct {
	docs   []manifest.Document
	scheme *runtime.Scheme
}

// ReaderOf reads documents as a cluster.
func ReaderOf(docs []manifest.Document) *Documents { return &Documents{docs, CacheOptions().Scheme} }

// Get implements client.Reader.
func (r *Documents) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	kind, err := apiutil.GVKForObject(into, r.scheme)
	if err != nil {
		return err
	}
	for i := range r.docs {
		if d := &r.docs[i]; isOf(d, kind) && d.Meta("name") == key.Name && d.Meta("namespace") == key.Namespace {
			return fill(d, into)
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: kind.Group, Resource: kind.Kind}, key.Name)
}

func isOf(d *manifest.Document, kind schema.GroupVersionKind) bool {
	return d.Kind() == kind.Kind && group(d) == kind.Group
}

// fill copies a document into an object.
func fill(d *manifest.Document, into any) error {
	if u, ok := into.(*unstructured.Unstructured); ok {
		text, err := json.Marshal(d.Object) // numbers of files are kept as text
		if err != nil {
			return err
		}
		return u.UnmarshalJSON(text)
	}
	return typed(d, into)
}

// List implements client.Reader.
func (r *Documents) List(_ context.Context, into client.ObjectList, opts ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(into, r.scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	var asked client.ListOptions
	asked.ApplyOptions(opts)
	for i := range r.docs {
		d := &r.docs[i]
		var meta metav1.PartialObjectMetadata
		if !isOf(d, kind) || typed(d, &meta) != nil || asked.Namespace != "" && meta.Namespace != asked.Namespace {
			continue
		}
		if asked.LabelSelector != nil && !asked.LabelSelector.Matches(labels.Set(meta.Labels)) {
			continue
		}
		if err := add(into, d, &meta); err != nil {
			return err
		}
	}
	return nil
}

// add puts a document into a list.
func add(into client.ObjectList, d *manifest.Document, meta *metav1.PartialObjectMetadata) error {
	switch list := into.(type) {
	case *unstructured.UnstructuredList:
		var u unstructured.Unstructured
		if err := fill(d, &u); err != nil {
			return err
		}
		list.Items = append(list.Items, u)
	case *metav1.PartialObjectMetadataList:
		list.Items = append(list.Items, *meta)
	case *corev1.PodList:
		var pod corev1.Pod
		if err := fill(d, &pod); err != nil {
			return err
		}
		list.Items = append(list.Items, pod)
	default:
		return fmt.Errorf("documents have no %T", into)
	}
	return nil
}
