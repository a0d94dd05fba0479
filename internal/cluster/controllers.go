package cluster

import (
	"context"
	"fmt"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// Controllers returns the Deployments of gpuctl's controller that are to run, in a
// namespace or, with "", in all.
func (c *Client) Controllers(ctx context.Context, namespace string) ([]types.NamespacedName, error) {
	list, err := c.core.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{
		LabelSelector: v1alpha1.LabelPartOf + "=" + v1alpha1.PartOf + "," + v1alpha1.LabelComponent + "=" + v1alpha1.ComponentController,
	})
	if err != nil {
		return nil, fmt.Errorf("list the controller's Deployments: %w", err)
	}
	var out []types.NamespacedName
	for i := range list.Items {
		if d := &list.Items[i]; d.Spec.Replicas == nil || *d.Spec.Replicas > 0 {
			out = append(out, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
		}
	}
	return out, nil
}

// StopController scales a Deployment of the controller to zero, and waits until its
// pods are gone. One that is not there is stopped.
func (c *Client) StopController(ctx context.Context, d types.NamespacedName) error {
	deployments := c.core.AppsV1().Deployments(d.Namespace)
	have, err := deployments.Get(ctx, d.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read Deployment %s: %w", d, err)
	}
	none := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name}}
	if _, err := deployments.UpdateScale(ctx, d.Name, none, metav1.UpdateOptions{FieldManager: c.manager}); err != nil {
		return fmt.Errorf("scale Deployment %s to zero: %w", d, err)
	}
	selector := metav1.FormatLabelSelector(have.Spec.Selector)
	err = wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		pods, err := c.core.CoreV1().Pods(d.Namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
		return err == nil && len(pods.Items) == 0, err
	})
	if err != nil {
		return fmt.Errorf("wait for the pods of Deployment %s to end: %w", d, err)
	}
	return nil
}
