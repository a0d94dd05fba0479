package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// readNode takes a Node, with the labels that a diagnosis looks at.
func readNode(f *Facts, d *manifest.Document) error {
	n, err := readLabelled(d, func(label string) bool {
		return strings.HasPrefix(label, gpu.Domain+"/") || strings.HasPrefix(label, "feature.node.kubernetes.io/pci-")
	})
	if err == nil {
		f.Nodes = append(f.Nodes, n)
	}
	return err
}

// readLabelled reads a Node, with the labels that are wanted.
func readLabelled(d *manifest.Document, wanted func(label string) bool) (gpu.Node, error) {
	n := gpu.Node{Name: d.Meta("name"), Labels: map[string]string{}}
	if n.Name == "" {
		return n, errors.New("metadata.name is empty")
	}
	labels, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "labels"})
	m, _ := labels.(map[string]any)
	for k, v := range m {
		if text, ok := v.(string); ok && wanted(k) {
			n.Labels[k] = text
		}
	}
	var err error
	if n.Capacity, err = resources(d.Object, "capacity"); err != nil {
		return n, err
	}
	if n.Allocatable, err = resources(d.Object, "allocatable"); err != nil {
		return n, err
	}
	cordoned, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "unschedulable"})
	n.Cordoned, n.NotReady = cordoned == true, notReady(d)
	return n, nil
}

// notReady reports a node whose kubelet does not say that it is ready. A manifest
// without conditions says nothing.
func notReady(d *manifest.Document) bool {
	for _, item := range items(d.Object, []string{"status", "conditions"}) {
		if c, _ := item.(map[string]any); c["type"] == "Ready" {
			return c["status"] != "True"
		}
	}
	return false
}

// resources reads the extended resources of a node's status: the names with a
// domain. Their quantities are whole numbers.
func resources(obj manifest.Object, field string) (map[gpu.ResourceName]int64, error) {
	out := map[gpu.ResourceName]int64{}
	v, _ := manifest.Lookup(obj, manifest.Path{"status", field})
	if v == nil {
		return out, nil
	}
	m, ok := v.(map[string]any)
	if !ok {
		return nil, fmt.Errorf("status.%s is no mapping", field)
	}
	for name, value := range m {
		if !strings.Contains(name, "/") {
			continue
		}
		count, err := quantity(value)
		if err != nil {
			return nil, fmt.Errorf("status.%s[%s]: %w", field, name, err)
		}
		out[gpu.ResourceName(name)] = count
	}
	return out, nil
}

func quantity(v any) (int64, error) {
	var text string
	switch t := v.(type) {
	case string:
		text = t
	case json.Number:
		text = t.String()
	case int64: // as client-go decodes it
		text = strconv.FormatInt(t, 10)
	default:
		return 0, fmt.Errorf("%v is no quantity", v)
	}
	q, err := resource.ParseQuantity(text)
	if err != nil {
		return 0, fmt.Errorf("quantity %q: %w", text, err)
	}
	n, ok := q.AsInt64()
	if !ok || n < 0 {
		return 0, fmt.Errorf("quantity %q is no whole number of devices", text)
	}
	return n, nil
}

// pluginImage is the name of NVIDIA's KubeVirt device plugin image; the kata
// plugin's DaemonSet has a similar name, so the image tells them apart.
const pluginImage = "kubevirt-gpu-device-plugin"

// readPlugins notes the release of the device plugin that runs on each node.
func readPlugins(f *Facts, docs []manifest.Document) {
	nodes := map[string]*gpu.Node{}
	for i := range f.Nodes {
		nodes[f.Nodes[i].Name] = &f.Nodes[i]
	}
	for i := range docs {
		d := &docs[i]
		if d.Kind() != "Pod" || group(d) != "" {
			continue
		}
		phase, _ := manifest.Lookup(d.Object, manifest.Path{"status", "phase"})
		release, ok := pluginRelease(d.Object)
		if !ok || phase == "Succeeded" || phase == "Failed" {
			continue
		}
		name, _ := manifest.Lookup(d.Object, manifest.Path{"spec", "nodeName"})
		if text, ok := name.(string); ok && nodes[text] != nil && nodes[text].Plugin.Compare(release) < 0 {
			nodes[text].Plugin = release
		}
	}
}

func pluginRelease(pod manifest.Object) (gpu.Release, bool) {
	v, _ := manifest.Lookup(pod, manifest.Path{"spec", "containers"})
	containers, _ := v.([]any)
	for _, c := range containers {
		m, _ := c.(map[string]any)
		image, _ := m["image"].(string)
		if r, ok := releaseOf(image); ok {
			return r, true
		}
	}
	return gpu.Release{}, false
}

// releaseOf returns the release of the device plugin that an image is.
func releaseOf(image string) (gpu.Release, bool) {
	image, _, _ = strings.Cut(image, "@")
	path, tag, ok := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if !ok || path != pluginImage {
		return gpu.Release{}, false
	}
	r, err := gpu.ParseRelease(tag)
	return r, err == nil
}
