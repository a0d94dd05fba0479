package certs

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrMissing is returned for an object of the chart that is not there: no account of
// gpuctl's may make it.
var ErrMissing = errors.New("it is not there; gpuctl upgrade, or helm, makes it")

// Configuration is one webhook configuration.
type Configuration struct {
	Resource, Name string
}

// Validating is a ValidatingWebhookConfiguration.
func Validating(name string) Configuration {
	return Configuration{"validatingwebhookconfigurations", name}
}

// Mutating is a MutatingWebhookConfiguration.
func Mutating(name string) Configuration {
	return Configuration{"mutatingwebhookconfigurations", name}
}

func (c Configuration) String() string { return c.Resource + " " + c.Name }

func (c Configuration) gvr() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "admissionregistration.k8s.io", Version: "v1", Resource: c.Resource}
}

// explain says what an object of the chart cannot be read or written for.
func explain(deed, object string, err error) error {
	if apierrors.IsNotFound(err) {
		err = ErrMissing
	}
	return fmt.Errorf("%s %s: %w", deed, object, err)
}

// configured is a webhook configuration as it was read.
type configured struct {
	Configuration
	object *unstructured.Unstructured
}

// bundles are what the API server trusts, webhook by webhook.
func (c *configured) bundles() (out [][]byte) {
	list, _, _ := unstructured.NestedSlice(c.object.Object, "webhooks")
	for _, item := range list {
		webhook, _ := item.(map[string]any)
		text, _, _ := unstructured.NestedString(webhook, "clientConfig", "caBundle")
		decoded, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			decoded = nil
		}
		out = append(out, decoded)
	}
	return out
}

// trust makes every webhook of the configuration trust a bundle, and says whether that
// was something new.
func (k *Keeper) trust(ctx context.Context, c *configured, bundle []byte) (changed bool, err error) {
	for _, b := range c.bundles() {
		changed = changed || !bytes.Equal(b, bundle)
	}
	if !changed {
		return false, nil
	}
	list, _, err := unstructured.NestedSlice(c.object.Object, "webhooks")
	for _, item := range list {
		webhook, _ := item.(map[string]any)
		err = errors.Join(err, unstructured.SetNestedField(webhook, base64.StdEncoding.EncodeToString(bundle), "clientConfig", "caBundle"))
	}
	if err = errors.Join(err, unstructured.SetNestedSlice(c.object.Object, list, "webhooks")); err != nil {
		return false, fmt.Errorf("edit %s: %w", c, err)
	}
	after, err := k.o.Objects.Resource(c.gvr()).Update(ctx, c.object, metav1.UpdateOptions{FieldManager: k.o.Manager})
	if err != nil {
		return false, explain("write the caBundle of", c.String(), err)
	}
	c.object = after
	return true, nil
}

// configurations reads the webhook configurations, live.
func (k *Keeper) configurations(ctx context.Context) (out []*configured, err error) {
	for _, c := range k.o.Configurations {
		u, err := k.o.Objects.Resource(c.gvr()).Get(ctx, c.Name, metav1.GetOptions{})
		if err != nil {
			return nil, explain("read", c.String(), err)
		}
		out = append(out, &configured{c, u})
	}
	return out, nil
}

// secret reads the Secret, live, and makes in it what is due.
func (k *Keeper) secret(ctx context.Context, outside [][]byte) (map[string][]byte, error) {
	secrets, object := k.o.Core.CoreV1().Secrets(k.o.Secret.Namespace), "Secret "+k.o.Secret.String()
	s, err := secrets.Get(ctx, k.o.Secret.Name, metav1.GetOptions{})
	if err != nil {
		return nil, explain("read", object, err)
	}
	want, done, err := stage(s.Data, outside, k.o.Name, k.o.Now())
	if err != nil {
		return nil, fmt.Errorf("keep %s: %w", object, err)
	}
	if done == "" {
		return s.Data, nil
	}
	change := &corev1.Secret{TypeMeta: s.TypeMeta, ObjectMeta: s.ObjectMeta, Type: s.Type, Immutable: s.Immutable, Data: maps.Clone(want)}
	if _, err := secrets.Update(ctx, change, metav1.UpdateOptions{FieldManager: k.o.Manager}); err != nil {
		return nil, explain("write", object, err)
	}
	k.o.Log.Info("the webhooks' certificates: "+done, "secret", k.o.Secret.String(), "authorities", len(parse(want[caCert])))
	return want, nil
}
