package cluster

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Survey is a cluster at one moment, as far as a diagnosis depends on it.
type Survey struct {
	At       time.Time
	Docs     []manifest.Document
	Problems []diagnose.Finding // what could not be read
	Pods     bool               // all pods of the cluster are among the documents
	Agents   bool               // so is all that tells which agents report
	Control  bool               // and what tells whether a controller runs, and which replica leads
	HNC      bool               // the hierarchical namespace controller is installed, as far as was asked
}

// surveyed is one kind that a survey lists, in pages.
type surveyed struct {
	schema.GroupKind
	options metav1.ListOptions
	// keep says which objects matter; nil keeps all.
	keep func(*manifest.Document) bool
	// loses says what cannot be told without the kind.
	loses string
	// wide kinds mean nothing for one namespace alone.
	wide bool
	// whole is what is known when all of the kind was read.
	whole func(*Survey) *bool
}

func surveys() []surveyed {
	kind := func(group, kind, loses string) surveyed {
		return surveyed{GroupKind: schema.GroupKind{Group: group, Kind: kind}, loses: loses}
	}
	agents := metav1.ListOptions{LabelSelector: AgentSelector}
	all := []surveyed{
		kind("kubevirt.io", "KubeVirt", "what is permitted"),
		kind("hco.kubevirt.io", "HyperConverged", "what HyperConverged permits"),
		kind("", "Node", "what nodes serve"),
		kind(v1alpha1.GroupName, "GPUNode", "what is on the nodes' PCI buses"),
		kind("kubevirt.io", "VirtualMachine", "which VMs want GPUs"),
		kind("kubevirt.io", "VirtualMachineInstance", "which VMs wait"),
		kind("kubevirt.io", "VirtualMachineInstanceReplicaSet", "which replica sets want GPUs"),
		kind("kubevirt.io", "VirtualMachineInstancePreset", "which presets add GPUs"),
		kind("pool.kubevirt.io", "VirtualMachinePool", "which pools want GPUs"),
		kind("instancetype.kubevirt.io", "VirtualMachineInstancetype", "which instancetypes add GPUs"),
		kind("instancetype.kubevirt.io", "VirtualMachineClusterInstancetype", "which instancetypes add GPUs"),
		kind("apps", "DaemonSet", "which device plugin runs, and which agents should"),
		kind(v1alpha1.GroupName, "GPUWiring", "what the controller says about the wiring"),
		kind(v1alpha1.GroupName, "GPUDevice", "what is ordered"),
	}
	pods := kind("", "Pod", "which GPUs are in use, and what runs on the nodes")
	pods.options.FieldSelector, pods.whole = "status.phase!=Succeeded", func(s *Survey) *bool { return &s.Pods }
	events := kind("", "Event", "what the scheduler, kubelet and KubeVirt say, and when the hook ran")
	events.options.FieldSelector, events.keep = "type=Warning", relevantEvent
	hook := events // a second look at the same kind: the hook's Events are no warnings
	hook.keep = nil
	hook.options.FieldSelector = "involvedObject.kind=KubeVirt"
	leases := kind("coordination.k8s.io", "Lease", "which agents report, and whether a controller leads")
	leases.options, leases.wide = agents, true
	leases.whole = func(s *Survey) *bool { return &s.Agents }
	return append(append(all, pods, events, hook, leases), controllers(leases)...)
}

// controllers are the kinds that tell whether a controller runs: its Deployment, and
// the Lease that the leader holds, which has no labels.
func controllers(leases surveyed) []surveyed {
	deployments := surveyed{
		GroupKind: schema.GroupKind{Group: "apps", Kind: "Deployment"}, options: metav1.ListOptions{LabelSelector: ControllerSelector},
		loses: "whether a controller keeps the wiring", wide: true, whole: func(s *Survey) *bool { return &s.Control },
	}
	leases.options, leases.whole = metav1.ListOptions{FieldSelector: "metadata.name=" + v1alpha1.ControllerLease}, deployments.whole
	return []surveyed{deployments, leases}
}

// isOperand reports a pod that is, or says it is, a part of gpu-operator.
func isOperand(d *manifest.Document) bool {
	for _, item := range items(d.Object, []string{"spec", "containers"}) {
		c, _ := item.(map[string]any)
		name, _ := c["name"].(string)
		image, _ := c["image"].(string)
		if operands[name] != "" || strings.Contains(image, pluginImage) {
			return true
		}
	}
	return false
}

func relevantEvent(d *manifest.Document) bool {
	about, _ := d.Object["involvedObject"].(map[string]any)
	name, _ := about["name"].(string)
	switch about["kind"] {
	case "VirtualMachine", "VirtualMachineInstance":
		return true
	case "Pod":
		return strings.HasPrefix(name, "virt-launcher-")
	}
	return false
}

// Survey reads the cluster. What may not be read, cluster-wide or in the namespace,
// is a problem that names the missing right; other failures are errors.
func (c *Client) Survey(ctx context.Context, namespace string) (Survey, error) {
	c.mapper.Reset()
	return c.surveyAll(ctx, namespace, surveys())
}

func (c *Client) surveyAll(ctx context.Context, namespace string, kinds []surveyed) (Survey, error) {
	s := Survey{At: time.Now(), Pods: true, Agents: true, Control: true}
	if _, err := c.mapper.RESTMapping(schema.GroupKind{Kind: "Node"}); err != nil { // one clear error instead of many
		return s, c.Explain(fmt.Errorf("ask what the cluster serves: %w", err))
	}
	found := make([]outcome, len(kinds))
	listAll(kinds, func(i int) { found[i] = c.survey(ctx, &kinds[i], namespace) })
	for i := range found {
		if err := s.take(&kinds[i], &found[i]); err != nil {
			return s, c.Explain(err)
		}
	}
	s.Docs = append(s.Docs, c.legacy(ctx, s.Docs)...)
	s.Docs = slices.DeleteFunc(s.Docs, foreignOperand(s.Docs))
	s.Docs = slices.DeleteFunc(s.Docs, ofGoneMachines(s.Docs, func(in string) bool {
		for i := range kinds {
			if isMachine(kinds[i].Kind) && !found[i].tells(in, namespace) {
				return false
			}
		}
		return true
	}))
	return s, nil
}

// listAll lists some kinds at a time, first those of which there are many.
func listAll(kinds []surveyed, list func(i int)) {
	// Nearly all that is read is kept: looking for garbage meanwhile finds little.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	many := []string{"Pod", "VirtualMachineInstance", "VirtualMachine", "Node"}
	var all sync.WaitGroup
	slots := make(chan struct{}, 6)
	for _, first := range []bool{true, false} {
		for i := range kinds {
			if slices.Contains(many, kinds[i].Kind) != first {
				continue
			}
			slots <- struct{}{}
			all.Go(func() {
				list(i)
				<-slots
			})
		}
	}
	all.Wait()
}

// outcome is what became of listing one kind.
type outcome struct {
	docs    []manifest.Document
	partial error // it could only be read in the namespace
	err     error
}

// tells reports whether all objects in a namespace were listed, where the one that is
// diagnosed is the only one that may have been.
func (o *outcome) tells(in, namespace string) bool {
	return o.err == nil && (o.partial == nil || in == namespace)
}

func (c *Client) survey(ctx context.Context, k *surveyed, namespace string) (o outcome) {
	o.docs, o.err = c.listKept(ctx, metav1.NamespaceAll, k)
	if apierrors.IsForbidden(o.err) && namespace != "" && !k.wide && c.namespaced(k.GroupKind) {
		docs, err := c.listKept(ctx, namespace, k)
		if err == nil {
			return outcome{docs: docs, partial: o.err}
		}
	}
	return o
}

func (c *Client) namespaced(kind schema.GroupKind) bool {
	mapping, err := c.mapper.RESTMapping(kind)
	return err == nil && mapping.Scope.Name() == meta.RESTScopeNameNamespace
}

func (c *Client) listKept(ctx context.Context, namespace string, k *surveyed) ([]manifest.Document, error) {
	if k.Kind == "Pod" {
		return c.listPods(ctx, namespace, k.options)
	}
	docs, err := c.listIn(ctx, namespace, k.GroupKind, k.options)
	if k.keep != nil {
		docs = slices.DeleteFunc(docs, func(d manifest.Document) bool { return !k.keep(&d) })
	}
	return docs, err
}

// take adds what one kind gave.
func (s *Survey) take(k *surveyed, o *outcome) error {
	s.Docs = append(s.Docs, o.docs...)
	lost := o.err
	if o.partial != nil {
		lost = o.partial
	}
	if lost != nil && k.whole != nil {
		*k.whole(s) = false
	}
	switch {
	case lost == nil:
	case meta.IsNoMatchError(lost) && k.Kind == "KubeVirt":
		s.Problems = append(s.Problems, diagnose.New("GPU0121", "cluster", nil))
	case meta.IsNoMatchError(lost):
	case apierrors.IsForbidden(lost):
		s.Problems = append(s.Problems, k.missing(lost, o.partial != nil))
	default:
		return fmt.Errorf("list %s: %w", k.Kind, lost)
	}
	return nil
}

// missing names the right that is missing, and what cannot be told without it.
func (k *surveyed) missing(err error, partly bool) diagnose.Finding {
	kinds := k.Kind + "s"
	if strings.HasSuffix(k.Kind, "s") {
		kinds = k.Kind + "es"
	}
	resource := strings.ToLower(kinds)
	var status apierrors.APIStatus
	if errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind != "" {
		resource = status.Status().Details.Kind
	}
	if k.Group != "" {
		resource += "." + k.Group
	}
	where := "in the cluster"
	if partly {
		where = "outside of the namespace"
	}
	return diagnose.New("GPU0130", "cluster", diagnose.Values{
		"what": kinds, "problem": fmt.Sprintf("you may not list %s %s, so it is not known %s", resource, where, k.loses),
		"hint": "kubectl auth can-i list " + resource + " -A tells; docs/diagnose.md has a ClusterRole with the rights",
	})
}

func isMachine(kind string) bool { return kind == "VirtualMachine" || kind == "VirtualMachineInstance" }

// ofGoneMachines tells Events about VMs and instances that are gone: Kubernetes keeps
// Events for an hour. known says of a namespace whether all of its machines are there.
func ofGoneMachines(docs []manifest.Document, known func(namespace string) bool) func(manifest.Document) bool {
	there := map[string]bool{}
	for i := range docs {
		switch d := &docs[i]; {
		case isMachine(d.Kind()):
			there["machine "+d.Meta("namespace")+"/"+d.Meta("name")] = true
		case d.Kind() == "Pod":
			there["pod "+d.Meta("namespace")+"/"+d.Meta("name")] = true
		}
	}
	return func(d manifest.Document) bool {
		if d.Kind() != "Event" {
			return false
		}
		kind, namespace, name := text(d.Object, "involvedObject", "kind"), text(d.Object, "involvedObject", "namespace"), text(d.Object, "involvedObject", "name")
		machine := name
		if launcher, ok := strings.CutPrefix(name, "virt-launcher-"); ok && kind == "Pod" {
			if there["pod "+namespace+"/"+name] {
				return false
			}
			machine = launcher[:max(strings.LastIndexByte(launcher, '-'), 0)]
		} else if !isMachine(kind) {
			return false
		}
		return known(namespace) && !there["machine "+namespace+"/"+machine]
	}
}

// foreignOperand tells pods that look like parts of gpu-operator and that no DaemonSet
// made: anybody can make such a pod. It tells nothing where no DaemonSets were read.
func foreignOperand(docs []manifest.Document) func(manifest.Document) bool {
	sets := map[string]bool{}
	for i := range docs {
		if docs[i].Kind() == "DaemonSet" {
			sets[docs[i].Meta("uid")] = true
		}
	}
	return func(d manifest.Document) bool {
		if d.Kind() != "Pod" || len(sets) == 0 {
			return false
		}
		if !isOperand(&d) {
			return false
		}
		for _, item := range items(d.Object, []string{"metadata", "ownerReferences"}) {
			ref, _ := item.(map[string]any)
			uid, _ := ref["uid"].(string)
			if ref["kind"] == "DaemonSet" && ref["controller"] == true && sets[uid] {
				return false
			}
		}
		return true
	}
}
