package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// resources of KubeVirt.
var (
	kubeVirts = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
	vmis      = schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "virtualmachineinstances"}
)

// decode reads one object from YAML or JSON.
func decode(text string) (*unstructured.Unstructured, error) {
	u := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096).Decode(u); err != nil {
		return nil, fmt.Errorf("read an object: %w", err)
	}
	if u.GetKind() == "" || u.GetAPIVersion() == "" {
		return nil, errors.New("read an object: it has no apiVersion or no kind")
	}
	return u, nil
}

// clientFor returns the client for an object. The name of the resource follows
// from the kind for all that Kubernetes and KubeVirt serve.
func clientFor(client dynamic.Interface, u *unstructured.Unstructured) dynamic.ResourceInterface {
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	if u.GetNamespace() == "" {
		return client.Resource(gvr)
	}
	return client.Resource(gvr).Namespace(u.GetNamespace())
}

// kubeVirts returns the client for KubeVirt CRs in KubeVirt's namespace.
func (s *stack) kubeVirts() dynamic.ResourceInterface {
	return s.dynamic.Resource(kubeVirts).Namespace(KubeVirtNamespace)
}

// create creates objects, all at the same time. One that exists is left as it is.
func create(ctx context.Context, client dynamic.Interface, list []unstructured.Unstructured) error {
	errs := make([]error, len(list))
	var wg sync.WaitGroup
	for i := range list {
		wg.Go(func() {
			u := &list[i]
			_, err := clientFor(client, u).Create(ctx, u, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) {
				errs[i] = fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// hasCondition reports a condition with status True.
func hasCondition(u *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok && c["type"] == kind && c["status"] == "True" {
			return true
		}
	}
	return false
}
