package cluster

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"os"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// manifests is the document that kubevirt/manifests prints.
type manifests struct {
	Operator []unstructured.Unstructured `json:"operator"` // what is on a cluster before virt-operator runs
	CRDs     []unstructured.Unstructured `json:"crds"`     // all but that of KubeVirt, which is among Operator
	Install  []unstructured.Unstructured `json:"install"`  // the rest of what virt-operator creates
}

func readManifests(path string) (manifests, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return manifests{}, err
	}
	var m manifests
	if err := json.Unmarshal(data, &m); err != nil {
		return manifests{}, fmt.Errorf("read %s: %w", path, err)
	}
	return m, nil
}

// partition returns the objects of these kinds, and the others.
func partition(list []unstructured.Unstructured, kinds ...string) (those, others []unstructured.Unstructured) {
	for i := range list {
		if slices.Contains(kinds, list[i].GetKind()) {
			those = append(those, list[i])
			continue
		}
		others = append(others, list[i])
	}
	return those, others
}

// trust makes the API server and KubeVirt's components trust an authority: it
// sets the CA of webhooks, APIServices and KubeVirt's CA ConfigMaps, which
// virt-operator would fill in.
func trust(list []unstructured.Unstructured, ca []byte) error {
	encoded := base64.StdEncoding.EncodeToString(ca)
	for i := range list {
		var err error
		switch u := list[i].Object; list[i].GetKind() {
		case "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration":
			err = trustWebhooks(u, encoded)
		case "APIService":
			err = unstructured.SetNestedField(u, encoded, "spec", "caBundle")
		case "ConfigMap":
			err = unstructured.SetNestedField(u, string(ca), "data", "ca-bundle")
		}
		if err != nil {
			return fmt.Errorf("set the CA of %s %s: %w", list[i].GetKind(), list[i].GetName(), err)
		}
	}
	return nil
}

func trustWebhooks(configuration map[string]any, ca string) error {
	webhooks, _, err := unstructured.NestedSlice(configuration, "webhooks")
	if err != nil {
		return err
	}
	for _, w := range webhooks {
		w, ok := w.(map[string]any)
		if !ok {
			return fmt.Errorf("a webhook is a %T", w)
		}
		if err := unstructured.SetNestedField(w, ca, "clientConfig", "caBundle"); err != nil {
			return err
		}
	}
	return unstructured.SetNestedSlice(configuration, webhooks, "webhooks")
}
