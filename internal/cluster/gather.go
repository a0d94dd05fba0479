package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// ErrNoKubeVirt is returned when the cluster has no KubeVirt installed.
var ErrNoKubeVirt = errors.New("KubeVirt is not installed")

// ErrNotReady is returned when KubeVirt is being installed and does not serve all
// of its kinds yet.
var ErrNotReady = errors.New("KubeVirt is not ready")

// listed is a kind that is read.
type listed struct {
	group, kind string
	optional    bool // the cluster may lack it, or not let us read it
	vital       bool // without it nobody can tell what the first entry breaks
}

func gathered() []listed {
	return []listed{
		{group: "kubevirt.io", kind: "KubeVirt"},
		{group: "hco.kubevirt.io", kind: "HyperConverged", optional: true},
		{group: "", kind: "Node"},
		{group: v1alpha1.GroupName, kind: "GPUNode", optional: true},
	}
}

// workloads are the kinds whose devices KubeVirt checks against the table.
func workloads() []listed {
	return []listed{
		{group: "kubevirt.io", kind: "VirtualMachine", vital: true},
		{group: "kubevirt.io", kind: "VirtualMachineInstance", vital: true},
		{group: "kubevirt.io", kind: "VirtualMachineInstanceReplicaSet", optional: true},
		{group: "kubevirt.io", kind: "VirtualMachineInstancePreset", optional: true},
		{group: "pool.kubevirt.io", kind: "VirtualMachinePool", optional: true},
		{group: "instancetype.kubevirt.io", kind: "VirtualMachineInstancetype", optional: true},
		{group: "instancetype.kubevirt.io", kind: "VirtualMachineClusterInstancetype", optional: true},
	}
}

// pageSize is how many objects one list request returns at most. The API server has
// the first page in its memory and takes the others from etcd, where reading them
// costs it several times as much: few lists should need a second one.
const pageSize = 2500

// Gather reads every object that wiring depends on, in the form that files have.
// Notes name what could not be read and is not vital. The error is
// [ErrNoKubeVirt] when the cluster does not know the kind, and [ErrNotReady] when
// it lacks VMs; lenient lets the latter pass. Kinds are looked up anew each time,
// since CRDs come and go.
func (c *Client) Gather(ctx context.Context, lenient bool) (docs []manifest.Document, notes []string, err error) {
	c.mapper.Reset()
	docs, notes, err = c.read(ctx, append(gathered(), workloads()...), lenient)
	if err != nil {
		return nil, nil, err
	}
	docs = append(docs, c.legacy(ctx, docs)...)
	more, note, err := c.Plugins(ctx)
	if note != "" {
		notes = append(notes, note)
	}
	return append(docs, more...), notes, err
}

// Workloads reads what may ask for devices. Notes name what could not be read; the
// error is [ErrNotReady] when the cluster lacks VMs. Kinds are looked up anew each time,
// as Gather does: one that was not served before may have come.
func (c *Client) Workloads(ctx context.Context) (docs []manifest.Document, notes []string, err error) {
	c.mapper.Reset()
	return c.read(ctx, workloads(), false)
}

func (c *Client) read(ctx context.Context, kinds []listed, lenient bool) (docs []manifest.Document, notes []string, err error) {
	for _, l := range kinds {
		found, err := c.list(ctx, schema.GroupKind{Group: l.group, Kind: l.kind})
		switch {
		case err == nil:
			docs = append(docs, found...)
		case meta.IsNoMatchError(err) && l.kind == "KubeVirt":
			return nil, nil, fmt.Errorf("%w in the cluster at %s", ErrNoKubeVirt, c.server)
		case meta.IsNoMatchError(err) && l.vital && !lenient:
			return nil, nil, fmt.Errorf("%w: the cluster at %s does not serve %s yet", ErrNotReady, c.server, l.kind)
		case meta.IsNoMatchError(err):
		case l.optional && apierrors.IsForbidden(err):
			notes = append(notes, fmt.Sprintf("cannot list %s, so none are considered: %v", l.kind, err))
		default:
			return nil, nil, c.Explain(fmt.Errorf("list %s: %w", l.kind, err))
		}
	}
	return docs, notes, nil
}

// legacy reads the ConfigMap from which old KubeVirt releases took their
// configuration, where there is one. Not being let read it is no matter: it is a
// hint only.
func (c *Client) legacy(ctx context.Context, docs []manifest.Document) []manifest.Document {
	mapping, err := c.mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
	if err != nil {
		return nil
	}
	var out []manifest.Document
	for i := range docs {
		if docs[i].Kind() != "KubeVirt" {
			continue
		}
		found, err := c.dynamic.Resource(mapping.Resource).Namespace(docs[i].Meta("namespace")).Get(ctx, legacyConfigMap, metav1.GetOptions{})
		if err == nil {
			out = append(out, c.document(found))
		}
	}
	return out
}

// Plugins reads the pods of the KubeVirt device plugin's DaemonSets, whose image
// tells the release on each node. Without the right to do so, which the note says, names
// are predicted for the newest release.
func (c *Client) Plugins(ctx context.Context) (pods []manifest.Document, note string, err error) {
	unseen := func(what string, err error) ([]manifest.Document, string, error) {
		if !apierrors.IsForbidden(err) {
			return nil, "", c.Explain(fmt.Errorf("list %s: %w", what, err))
		}
		return nil, fmt.Sprintf("cannot list %s, so the device plugin's release is not known: %v", what, err), nil
	}
	sets, err := c.list(ctx, schema.GroupKind{Group: "apps", Kind: "DaemonSet"})
	if err != nil {
		return unseen("DaemonSets", err)
	}
	for i := range sets {
		template, _ := manifest.Lookup(sets[i].Object, manifest.Path{"spec", "template"})
		pod, _ := template.(map[string]any)
		if _, ok := pluginRelease(pod); !ok {
			continue
		}
		found, err := c.podsOf(ctx, &sets[i])
		if err != nil {
			return unseen("the device plugin's pods", err)
		}
		pods = append(pods, found...)
	}
	return pods, "", nil
}

// podsOf lists the pods that a DaemonSet of the device plugin controls, and of them what
// is looked at. Its labels alone prove nothing: anybody can make a pod that carries them.
func (c *Client) podsOf(ctx context.Context, d *manifest.Document) (pods []manifest.Document, err error) {
	var set appsv1.DaemonSet
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(d.Object, &set); err != nil {
		return nil, err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, err
	}
	opts, alike := metav1.ListOptions{LabelSelector: selector.String()}, &pool{}
	err = c.eachPod(ctx, set.Namespace, opts, func(pod *corev1.Pod) error {
		if !metav1.IsControlledBy(pod, &set) {
			return nil
		}
		d, err := c.podDocument(leanPlugin(pod))
		alike.parts(d.Object)
		pods = append(pods, d)
		return err
	})
	return pods, err
}

// list reads all objects of a kind in the version that the server prefers.
func (c *Client) list(ctx context.Context, kind schema.GroupKind) ([]manifest.Document, error) {
	return c.listIn(ctx, metav1.NamespaceAll, kind, metav1.ListOptions{})
}

func (c *Client) listIn(ctx context.Context, namespace string, kind schema.GroupKind, opts metav1.ListOptions) ([]manifest.Document, error) {
	mapping, err := c.mapper.RESTMapping(kind)
	if err != nil {
		return nil, err
	}
	opts.Limit = pageSize
	var out []manifest.Document
	for {
		p, err := c.page(ctx, namespace, mapping, &opts)
		if err != nil {
			return nil, err
		}
		for _, item := range p.items {
			out = append(out, manifest.Live(c.server, item))
		}
		if opts.Continue = p.next; opts.Continue == "" {
			return out, nil
		}
	}
}

// Nodes reads the nodes alone, for somebody who waits for them.
func (c *Client) Nodes(ctx context.Context) ([]gpu.Node, error) {
	docs, err := c.list(ctx, schema.GroupKind{Kind: "Node"})
	if err != nil {
		return nil, err
	}
	facts, err := Read(docs)
	return facts.Nodes, err
}

func (c *Client) document(u *unstructured.Unstructured) manifest.Document {
	unstructured.RemoveNestedField(u.Object, "metadata", "managedFields")
	unstructured.RemoveNestedField(u.Object, "status", "images") // a Node's bulk
	return manifest.Live(c.server, u.Object)
}

// Explain adds to an error of the API server what to do about it.
func (c *Client) Explain(err error) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w; the credentials for %s are wrong or have expired: log in again", err, c.server)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w; see docs/wiring.md for the rights that gpuctl needs", err)
	case strings.Contains(err.Error(), "connection refused"), strings.Contains(err.Error(), "EOF"), strings.Contains(err.Error(), "connection reset"):
		return fmt.Errorf("%w; is the API server at %s up? kubectl get --raw /readyz tells", err, c.server)
	}
	return err
}
