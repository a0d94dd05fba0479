package fleet

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// writers is how many requests write at the same time.
const writers = 12

// InParallel calls f for 0 to n-1 and returns the first error.
func InParallel(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	done := make(chan struct{})
	for range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range next {
				if ctx.Err() != nil {
					continue
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range writers {
		<-done
	}
	return context.Cause(ctx)
}

// Write makes the object of a YAML text, and the status of a pod or VM. It waits
// for a kind that the API server does not serve yet.
func Write(ctx context.Context, client dynamic.Interface, text string) (uid string, err error) {
	u := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096).Decode(u); err != nil {
		return "", fmt.Errorf("read %s: %w", text, err)
	}
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	resource := dynamic.ResourceInterface(client.Resource(gvr))
	if u.GetNamespace() != "" {
		resource = client.Resource(gvr).Namespace(u.GetNamespace())
	}
	made, err := resource.Create(ctx, u, metav1.CreateOptions{})
	for deadline := time.Now().Add(20 * time.Second); isStarting(err) && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
		made, err = resource.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	status, _ := u.Object["status"].(map[string]any)
	if kind := u.GetKind(); status == nil || kind != "Pod" && kind != "VirtualMachine" {
		return string(made.GetUID()), nil
	}
	if given, ok := made.Object["status"].(map[string]any); ok {
		status["qosClass"] = given["qosClass"] // which nobody may change
	}
	made.Object["status"] = status
	if _, err := resource.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return "", fmt.Errorf("update the status of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return string(made.GetUID()), nil
}

// isStarting reports a kind that the API server does not serve yet.
func isStarting(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) }
