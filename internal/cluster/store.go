package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Get reads an object of the cluster anew.
func (c *Client) Get(ctx context.Context, d *manifest.Document) (manifest.Object, error) {
	r, err := c.resource(d)
	if err != nil {
		return nil, err
	}
	got, err := r.Get(ctx, d.Meta("name"), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	return got.Object, nil
}

// Update replaces an object, and returns it as it was stored. It carries the resourceVersion that it was read
// with, so a change by somebody else in between is a conflict.
func (c *Client) Update(ctx context.Context, d *manifest.Document, obj manifest.Object) (manifest.Object, error) {
	r, err := c.resource(d)
	if err != nil {
		return nil, err
	}
	stored, err := r.Update(ctx, &unstructured.Unstructured{Object: obj}, metav1.UpdateOptions{FieldManager: c.manager})
	if err != nil {
		return nil, err
	}
	return stored.Object, nil
}

// resource finds the endpoint of an object, in the version that it was read in.
func (c *Client) resource(d *manifest.Document) (dynamic.ResourceInterface, error) {
	gv, err := schema.ParseGroupVersion(d.APIVersion())
	if err != nil {
		return nil, err
	}
	mapping, err := c.mapper.RESTMapping(gv.WithKind(d.Kind()).GroupKind(), gv.Version)
	if err != nil {
		return nil, err
	}
	if ns := d.Meta("namespace"); ns != "" {
		return c.dynamic.Resource(mapping.Resource).Namespace(ns), nil
	}
	return c.dynamic.Resource(mapping.Resource), nil
}
