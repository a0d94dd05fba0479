package cluster

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

var gpuClasses = v1alpha1.GroupVersion.WithResource("gpuclasses")

// GPUClass reads a class; nil when there is none of this name.
func (c *Client) GPUClass(ctx context.Context, name string) (*v1alpha1.GPUClass, error) {
	var class v1alpha1.GPUClass
	if found, err := c.own(ctx, gpuClasses, name, &class); err != nil || !found {
		return nil, wrap(err, "read GPUClass %s", name)
	}
	return &class, nil
}

// NamespaceLabels reads the labels of a namespace.
func (c *Client) NamespaceLabels(ctx context.Context, name string) (map[string]string, error) {
	namespace, err := c.core.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, wrap(err, "read namespace %s", name)
	}
	return namespace.Labels, nil
}
