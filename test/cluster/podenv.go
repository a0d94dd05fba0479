package cluster

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// variables are the environment that a pod describes.
type variables map[string]string

func (v variables) get(name string) (string, bool) {
	value, ok := v[name]
	return value, ok
}

// list returns "NAME=value" for all, with paths as they are on this machine.
func (v variables) list(local localPaths) []string {
	var env []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		env = append(env, name+"="+local.rewrite(v[name]))
	}
	return env
}

// resolveEnv returns the container's variables. Later ones may be made of
// earlier ones.
func (c *container) resolveEnv(ctx context.Context, pod *corev1.Pod) (variables, error) {
	values := variables{}
	for _, from := range c.spec.EnvFrom {
		data, err := c.sandbox.envFrom(ctx, from)
		if err != nil {
			return nil, err
		}
		for name, value := range data {
			values[from.Prefix+name] = value
		}
	}
	for _, e := range c.spec.Env {
		value, ok, err := c.resolve(ctx, pod, e, values)
		if err != nil {
			return nil, err
		}
		if ok {
			values[e.Name] = value
		}
	}
	return values, nil
}

// envFrom returns all variables of a ConfigMap or Secret.
func (b *sandbox) envFrom(ctx context.Context, from corev1.EnvFromSource) (map[string]string, error) {
	data := map[string]string{}
	var content map[string][]byte
	var err error
	switch {
	case from.ConfigMapRef != nil:
		content, err = b.configMap(ctx, from.ConfigMapRef.Name, from.ConfigMapRef.Optional)
	case from.SecretRef != nil:
		content, err = b.secret(ctx, from.SecretRef.Name, from.SecretRef.Optional)
	}
	for key, value := range content {
		data[key] = string(value)
	}
	return data, err
}

// resolve returns the value of one variable, if it has one.
func (c *container) resolve(ctx context.Context, pod *corev1.Pod, e corev1.EnvVar, values variables) (string, bool, error) {
	b := c.sandbox
	from := e.ValueFrom
	switch {
	case from == nil:
		return expand(e.Value, values.get), true, nil
	case from.FieldRef != nil:
		value, err := b.field(pod, from.FieldRef.FieldPath)
		return value, true, err
	case from.ResourceFieldRef != nil:
		value, err := b.resourceField(ctx, pod, c.spec.Name, from.ResourceFieldRef)
		return value, true, err
	case from.ConfigMapKeyRef != nil:
		ref := from.ConfigMapKeyRef
		data, err := b.configMap(ctx, ref.Name, ref.Optional)
		return keyOf(data, err, "configmap", b.namespace, ref.Name, ref.Key, ref.Optional)
	case from.SecretKeyRef != nil:
		ref := from.SecretKeyRef
		data, err := b.secret(ctx, ref.Name, ref.Optional)
		return keyOf(data, err, "secret", b.namespace, ref.Name, ref.Key, ref.Optional)
	default:
		return "", false, fmt.Errorf("the source of variable %s is not played", e.Name)
	}
}

// keyOf returns the value of a key, in kubelet's words if there is none.
func keyOf(data map[string][]byte, err error, kind, namespace, name, key string, optional *bool) (string, bool, error) {
	if err != nil {
		return "", false, err
	}
	value, ok := data[key]
	if !ok && !isTrue(optional) {
		return "", false, fmt.Errorf("couldn't find key %s in %s %s/%s", key, kind, namespace, name)
	}
	return string(value), ok, nil
}

// configMap returns what a ConfigMap of the pod's namespace holds; an optional
// one may be missing.
func (b *sandbox) configMap(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	got, err := b.kubelets.stack.clientset.CoreV1().ConfigMaps(b.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, "configmap", name, optional)
	}
	data := maps.Clone(got.BinaryData)
	if data == nil {
		data = map[string][]byte{}
	}
	for key, value := range got.Data {
		data[key] = []byte(value)
	}
	return data, nil
}

// secret is the same for a Secret.
func (b *sandbox) secret(ctx context.Context, name string, optional *bool) (map[string][]byte, error) {
	got, err := b.kubelets.stack.clientset.CoreV1().Secrets(b.namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, missing(err, "secret", name, optional)
	}
	return got.Data, nil
}

// missing words the error about an object in kubelet's words; it is none where
// the object is optional.
func missing(err error, kind, name string, optional *bool) error {
	if !apierrors.IsNotFound(err) {
		return err
	}
	if isTrue(optional) {
		return nil
	}
	return fmt.Errorf("%s %q not found", kind, name)
}

func isTrue(b *bool) bool { return b != nil && *b }
