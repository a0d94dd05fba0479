package e2e

import (
	stdcmp "cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	crcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// follows is within which time books have to say what the API server holds.
const follows = time.Second

// fed is a feed on an API server.
type fed struct {
	*testcluster.Cluster
	t *testing.T
	*cluster.Feed
	told *atomic.Int64 // how often something changed
}

// feed starts a feed of its own, and waits until it is complete.
func feed(t *testing.T, c *testcluster.Cluster, o cluster.FeedOptions) *fed {
	t.Helper()
	log.SetLogger(logr.Discard())
	config := c.Config()
	config.WarningHandler = rest.NoWarnings{}
	client, err := cluster.ForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	held, err := crcache.New(config, cluster.CacheOptions())
	if err != nil {
		t.Fatal(err)
	}
	if o.Tenants == nil {
		o.Tenants, _ = labels.Parse("kubernetes.io/metadata.name notin (default,kube-system,kube-public,kube-node-lease,kubevirt)")
	}
	var told atomic.Int64
	o.Namespace, o.Changed = "gpuctl", func() { told.Add(1) }
	watcher := cluster.NewWatcher(client, held, func() {}, logr.Discard())
	f := cluster.NewFeed(client, watcher, o)
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	for _, start := range []func(context.Context) error{held.Start, watcher.Start, f.Start} {
		go func() { _ = start(ctx) }()
	}
	began := time.Now()
	c.Eventually(soon, "the feed is complete", func(context.Context) error {
		if !f.Synced() {
			return errors.New("it is not")
		}
		return nil
	})
	t.Logf("complete after %s", time.Since(began).Round(time.Millisecond))
	return &fed{c, t, f, &told}
}

// installCRDs creates gpuctl's kinds.
func installCRDs(t *testing.T, c *testcluster.Cluster) {
	t.Helper()
	folder := charts.GPUOperatorHooks + "/files/crds"
	entries, err := charts.FS.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		text, err := fs.ReadFile(charts.FS, folder+"/"+e.Name())
		if err != nil {
			t.Fatal(err)
		}
		c.Create(c.Decode(string(text)))
	}
	for _, kind := range []string{"gpuclasses", "gpudevices", "gpunodes"} {
		c.Eventually(soon, kind+" are served", func(ctx context.Context) error {
			_, err := c.Dynamic().Resource(v1alpha1.GroupVersion.WithResource(kind)).List(ctx, metav1.ListOptions{})
			return err
		})
	}
}

// free returns a check of how many H200s are free on a node.
func (f *fed) free(node string, want int64) func(context.Context) error {
	return func(context.Context) (err error) {
		f.Books(func(b *books.Books) {
			if got := b.Snapshot().Free(node, h200); got != want {
				served, held := b.Snapshot().Units(node, h200)
				err = fmt.Errorf("%d are free on %s, want %d; it serves %d, %d are held", got, node, want, served, held)
			}
		})
		return err
	}
}

// admits returns a check of what becomes of an order: the code of a refusal, or "".
func (f *fed) admits(namespace, class string, count int32, want string) func(context.Context) error {
	return func(context.Context) (err error) {
		f.Books(func(b *books.Books) {
			answer := b.Admit(books.Order{Object: "o", Namespace: namespace, Class: class, Count: count})
			code := ""
			if refusal, ok := errors.AsType[*diagnose.Refusal](answer); ok {
				code = string(refusal.Code)
			}
			if code != want {
				err = fmt.Errorf("an order of %d %s in %s: %w, want %q", count, class, namespace, stdcmp.Or(answer, errors.New("admitted")), want)
			}
		})
		return err
	}
}

// soonIs has the books follow within a second.
func (f *fed) soonIs(what string, check func(context.Context) error) {
	f.t.Helper()
	f.Eventually(follows, what, check)
}

func (f *fed) patch(u *unstructured.Unstructured, patch string, subresources ...string) *unstructured.Unstructured {
	f.t.Helper()
	got, err := f.Resource(u).Patch(f.t.Context(), u.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresources...)
	if err != nil {
		f.t.Fatal(err)
	}
	return got
}

func (f *fed) remove(u *unstructured.Unstructured) {
	f.t.Helper()
	now := int64(0)
	if err := f.Resource(u).Delete(f.t.Context(), u.GetName(), metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		f.t.Fatal(err)
	}
}

// namespace creates a namespace with labels, in YAML.
func (f *fed) namespace(name, labelled string) *unstructured.Unstructured {
	f.t.Helper()
	return f.Create(f.Decode(fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {%s}}}", name, labelled)))
}

// device creates a device in acme-dev.
func (f *fed) device(name string, count int) *unstructured.Unstructured {
	f.t.Helper()
	return f.Create(f.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: %s, namespace: acme-dev}, spec: {className: h200, count: %d}}", name, count)))
}

const placedAt = "2026-11-30T12:00:00.000001Z"

// place writes a placement, and the VMI that uses it if there is one.
func (f *fed) place(u *unstructured.Unstructured, node string, units int, vmi types.UID) *unstructured.Unstructured {
	f.t.Helper()
	state, attachment := "Held", ""
	if vmi != "" {
		state, attachment = "Attached", fmt.Sprintf(`,"attachment":{"vmiName":"vm1","vmiUID":%q,"requestID":"0123456789abcdef0123456789abcdef","since":%q}`, vmi, placedAt)
	}
	return f.patch(u, fmt.Sprintf(`{"status":{"state":%q,"origin":{"kind":"Order"},"placement":{"node":%q,"resourceName":%q,"units":%d,"since":%q}%s}}`, state, node, h200, units, placedAt, attachment), "status")
}

// pod creates a pod that takes H200s on a node.
func (f *fed) pod(name, node string, units int) *unstructured.Unstructured {
	f.t.Helper()
	return f.Create(f.Decode(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: %s, namespace: acme-dev},
		spec: {nodeName: %s, containers: [{name: c, image: "i:1", resources: {limits: {%s: %d}}}]}}`, name, node, h200, units)))
}

// typedDevice is a device as Go has it.
func typedDevice(t *testing.T, u *unstructured.Unstructured) *v1alpha1.GPUDevice {
	t.Helper()
	var d v1alpha1.GPUDevice
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// shownBooks is what readers see of books.
func shownBooks(b *books.Books) (out []string) {
	for d := range b.Snapshot().Devices() {
		out = append(out, fmt.Sprintf("%+v", d))
	}
	for _, node := range []string{"n1", "n2"} {
		served, held := b.Snapshot().Units(node, h200)
		out = append(out, fmt.Sprintf("%s: %d held of %d, %d free", node, held, served, b.Snapshot().Free(node, h200)))
	}
	for _, namespace := range []string{"acme", "acme-dev", "above", "below", "nobody", "nowhere", "kube-system"} {
		for _, count := range []int32{1, 2, 4, 8} {
			out = append(out, fmt.Sprintf("%s orders %d: %v", namespace, count, b.Admit(books.Order{Object: "o", Namespace: namespace, Class: "h200", Count: count})))
		}
	}
	return append(out, fmt.Sprint(b.Names().All()))
}

// sameAs compares the books of two feeds.
func (f *fed) sameAs(other *fed) {
	f.t.Helper()
	f.Books(func(mine *books.Books) {
		other.Books(func(theirs *books.Books) {
			if diff := cmp.Diff(shownBooks(mine), shownBooks(theirs)); diff != "" || !reflect.DeepEqual(mine.Snapshot(), theirs.Snapshot()) {
				f.t.Errorf("two feeds differ (-kept +new):\n%s", diff)
			}
		})
	})
	if diff := cmp.Diff(f.Devices(), other.Devices()); diff != "" {
		f.t.Errorf("devices of two feeds differ (-kept +new):\n%s", diff)
	}
}

// sameAsOneLook compares the books with those of one look at the cluster. These have UIDs
// of their own.
func (f *fed) sameAsOneLook() {
	f.t.Helper()
	client, err := cluster.ForConfig(f.Config())
	if err != nil {
		f.t.Fatal(err)
	}
	survey, err := client.SurveyOrders(f.t.Context(), "")
	if err != nil {
		f.t.Fatal(err)
	}
	agents, err := cluster.AgentsOf(survey.Docs, survey.At)
	if err != nil {
		f.t.Fatal(err)
	}
	look := cluster.BooksOf(survey.Docs, append([]diagnose.Agent{}, agents...), survey.HNC)
	shown := func(b *books.Books) []string {
		return slices.DeleteFunc(shownBooks(b), func(line string) bool { return strings.Contains(line, "UID:") })
	}
	f.Books(func(mine *books.Books) {
		if diff := cmp.Diff(shown(mine), shown(look)); diff != "" {
			f.t.Errorf("the books differ (-followed +looked at):\n%s", diff)
		}
		if diff := cmp.Diff(mine.Offers(), look.Offers()); diff != "" {
			f.t.Errorf("offers differ (-followed +looked at):\n%s", diff)
		}
	})
}

// TestFeed has books follow each kind of objects on an API server, through its restart,
// and compares them with those of a feed that starts when all has happened.
func TestFeed(t *testing.T) {
	c := testcluster.Start(t, testcluster.APIOnly())
	installCRDs(t, c)
	c.AddNode(testcluster.Node{Name: "n1", Resources: map[corev1.ResourceName]int64{h200: 8}})
	class := c.Create(c.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: %s, maxCount: 8}}", h200)))
	f := feed(t, c, cluster.FeedOptions{Log: testr.New(t)})
	f.soonIs("a node of before serves", f.free("n1", 8))

	f.followsNodes()
	f.followsClasses(class)
	f.followsTenants()
	f.followsAgents()
	f.followsNames()
	f.followsUses()
	f.followsSilence()
	f.followsHierarchies()
	f.sameAs(feed(t, c, cluster.FeedOptions{}))
	f.sameAsOneLook()
	f.survivesRestart()
	f.sameAs(feed(t, c, cluster.FeedOptions{}))
}

func (f *fed) followsNodes() {
	f.AddNode(testcluster.Node{Name: "n2", Resources: map[corev1.ResourceName]int64{h200: 4}})
	f.soonIs("a node comes", f.free("n2", 4))
	f.SetAllocatable("n2", h200, 2)
	f.soonIs("it serves less", f.free("n2", 2))
	n2 := f.Decode("{apiVersion: v1, kind: Node, metadata: {name: n2}}")
	f.namespace("nobody", "")
	f.SetAllocatable("n1", h200, 0)
	f.soonIs("one has none left", f.admits("nobody", "h200", 1, ""))
	f.patch(n2, `{"spec":{"unschedulable":true}}`)
	f.soonIs("the other is cordoned", f.admits("nobody", "h200", 1, "GPU0705"))
	f.SetAllocatable("n1", h200, 8)
	f.soonIs("the first is back", f.admits("nobody", "h200", 8, ""))
	f.RemoveNode("n2")
	f.soonIs("a node goes", f.free("n2", 0))
}

func (f *fed) followsClasses(class *unstructured.Unstructured) {
	f.namespace("orders", "")
	f.soonIs("anybody may order", f.admits("orders", "h200", 8, ""))
	f.patch(class, `{"spec":{"maxCount":2}}`)
	f.soonIs("less at once", f.admits("orders", "h200", 3, "GPU0623"))
	f.patch(class, `{"spec":{"maxCount":8,"nodeSelector":{"zone":"east"}}}`)
	f.soonIs("elsewhere only", f.admits("orders", "h200", 1, "GPU0702"))
	n1 := f.Decode("{apiVersion: v1, kind: Node, metadata: {name: n1}}")
	f.patch(n1, `{"metadata":{"labels":{"zone":"east"}}}`)
	f.soonIs("a node is there now", f.admits("orders", "h200", 1, ""))
	f.patch(class, `{"spec":{"nodeSelector":null}}`)
	other := f.Create(f.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: other}, spec: {resourceName: %s}}", h200)))
	f.soonIs("another class", f.admits("orders", "other", 1, ""))
	f.remove(other)
	f.soonIs("it goes", f.admits("orders", "other", 1, "GPU0620"))
}

func (f *fed) followsTenants() {
	f.namespace("acme", "")
	dev := f.namespace("acme-dev", "gpuctl.dev/parent: acme")
	f.soonIs("a tenant without a budget", f.admits("acme-dev", "h200", 8, ""))
	quota := f.Create(f.Decode(fmt.Sprintf(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: gpus, namespace: acme}, spec: {hard: {requests.%s: 4}}}`, h200)))
	f.soonIs("a budget above it", f.admits("acme-dev", "h200", 5, "GPU0611"))
	f.soonIs("and what it allows", f.admits("acme-dev", "h200", 4, ""))
	f.patch(quota, fmt.Sprintf(`{"spec":{"hard":{"requests.%s":"6"}}}`, h200))
	f.soonIs("a larger budget", f.admits("acme-dev", "h200", 6, ""))
	f.patch(dev, `{"metadata":{"labels":{"gpuctl.dev/parent":null}}}`)
	f.soonIs("no longer below it", f.admits("acme-dev", "h200", 7, ""))
	f.patch(dev, `{"metadata":{"labels":{"gpuctl.dev/parent":"acme"}}}`)
	f.soonIs("and again", f.admits("acme-dev", "h200", 7, "GPU0611"))
	f.remove(quota)
	f.soonIs("the budget goes", f.admits("acme-dev", "h200", 7, ""))
	leaves := f.namespace("leaves", "")
	f.soonIs("a namespace comes", f.admits("leaves", "h200", 1, ""))
	f.patch(leaves, `{"metadata":{"finalizers":["gpuctl.dev/test"]}}`)
	f.remove(leaves)
	f.soonIs("it is being deleted", f.admits("leaves", "h200", 1, "GPU0604"))
	f.soonIs("no tenant", f.admits("kube-system", "h200", 1, "GPU0602"))
	f.soonIs("no namespace", f.admits("nowhere", "h200", 1, "GPU0603"))
}

func (f *fed) followsAgents() {
	report := f.Create(f.Decode(`{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n1}, spec: {agentVersion: v1, gpus: 1, onVFIO: 1, functions: [
		{address: "0000:18:00.0", id: "10de:2335", class: "0302", driver: vfio-pci, iommuGroup: "1", role: gpu}]}}`))
	f.soonIs("an agent reports one GPU", f.free("n1", 1))
	f.patch(report, `{"spec":{"functions":[{"address":"0000:18:00.0","id":"10de:2335","class":"0302","driver":"vfio-pci","iommuGroup":"1","role":"gpu"},
		{"address":"0000:2a:00.0","id":"10de:2335","class":"0302","driver":"vfio-pci","iommuGroup":"2","role":"gpu"}]}}`)
	f.soonIs("and another one", f.free("n1", 2))
	f.remove(report)
	f.soonIs("no agent", f.free("n1", 8))
}

// named returns a check that a name counts, or does not.
func (f *fed) named(name gpu.ResourceName, want bool) func(context.Context) error {
	return func(context.Context) (err error) {
		f.Books(func(b *books.Books) {
			if got := b.Names().Has(name); got != want {
				err = fmt.Errorf("%s counts: %t", name, got)
			}
		})
		return err
	}
}

func (f *fed) followsNames() {
	f.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector":"10de:26b9","resourceName":"example.com/l40s"}]}}}}`)
	f.soonIs("the KubeVirt CR permits one of NVIDIA's", f.named("example.com/l40s", true))
	claim := f.Create(f.Decode(fmt.Sprintf("{apiVersion: resource.k8s.io/v1, kind: DeviceClass, metadata: {name: claimed}, spec: {extendedResourceName: %s}}", h200)))
	f.soonIs("a DeviceClass of a GPU", f.named("deviceclass.resource.kubernetes.io/claimed", true))
	f.remove(claim)
	f.soonIs("it goes", f.named("deviceclass.resource.kubernetes.io/claimed", false))
	f.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":null}}}`)
	f.soonIs("nothing is permitted", f.named("example.com/l40s", false))
}

func (f *fed) followsUses() {
	f.Eventually(soon, "pods may be made", func(ctx context.Context) error {
		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
		_, err := f.Clientset().CoreV1().ServiceAccounts("acme-dev").Create(ctx, account, metav1.CreateOptions{})
		return err
	})
	d := f.device("train-a", 2)
	f.soonIs("an order holds nothing", f.free("n1", 8))
	d = f.place(d, "n1", 2, "")
	f.soonIs("a device is placed", f.free("n1", 6))
	raw := f.pod("raw", "n1", 1)
	f.soonIs("a pod takes one", f.free("n1", 5))

	vmi := f.Create(f.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: vm1, namespace: acme-dev}, spec: {domain: {devices: {}}}}"))
	launcher := f.pod("launcher", "n1", 2)
	f.soonIs("a launcher that nobody lists", f.free("n1", 3))
	d = f.place(d, "n1", 2, vmi.GetUID())
	f.patch(vmi, fmt.Sprintf(`{"status":{"activePods":{%q:"n1"}}}`, launcher.GetUID()))
	f.soonIs("it is listed, and the device's", f.free("n1", 5))
	d = f.patch(d, fmt.Sprintf(`{"status":{"state":"Lost","placement":{"lostSince":%q}}}`, placedAt), "status")
	f.soonIs("a lost device holds nothing, and its launcher runs", f.running("n1", string(d.GetUID()), 2))
	f.patch(d, `{"status":{"state":"Attached","placement":{"lostSince":null}}}`, "status")
	f.soonIs("it is back", f.free("n1", 5))
	f.remove(vmi)
	f.soonIs("the VMI goes, its launcher not yet", f.free("n1", 3))
	f.remove(launcher)
	f.soonIs("the launcher goes", f.free("n1", 5))
	f.remove(raw)
	f.soonIs("the pod goes", f.free("n1", 6))
	f.done("n1")
	f.assumes()
	f.remove(d)
	f.soonIs("the device goes", f.free("n1", 8))
	f.place(f.device("train-b", 4), "n1", 4, "")
	f.soonIs("another one", f.free("n1", 4))
}

// settles returns a check of how many writes bring nodes and devices together again.
func (f *fed) settles(want int) func(context.Context) error {
	return func(context.Context) (err error) {
		f.Books(func(b *books.Books) {
			round := b.Begin()
			defer round.Close()
			if got := round.Settle(); len(got) != want {
				err = fmt.Errorf("it takes %+v", got)
			}
		})
		return err
	}
}

// followsSilence has the agent of a node report fewer GPUs than are held: something is
// concluded when it is not silent.
func (f *fed) followsSilence() {
	f.namespace("gpuctl", "")
	const function = `{"address":"0000:%s:00.0","id":"10de:2335","class":"0302","driver":"vfio-pci","role":"gpu"}`
	report := f.Create(f.Decode(`{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: n1}, spec: {agentVersion: v1, gpus: 1, onVFIO: 1, functions: [` + fmt.Sprintf(function, "18") + `]}}`))
	f.soonIs("fewer are served than held", f.free("n1", 0))
	f.Always(askedFor, "its agent is silent", f.settles(0))
	part := "labels: {app.kubernetes.io/part-of: gpuctl, app.kubernetes.io/component: agent}"
	spec := `selector: {matchLabels: {app.kubernetes.io/component: agent}}, template: {metadata: {` + part + `}, spec: {containers: [{name: agent, image: "i:1"}]}}`
	set := f.Create(f.Decode("{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: agent, namespace: gpuctl, " + part + "}, spec: {" + spec + "}}"))
	f.Create(f.Decode("{apiVersion: v1, kind: ServiceAccount, metadata: {name: default, namespace: gpuctl}}"))
	f.Create(f.Decode(fmt.Sprintf(`{apiVersion: v1, kind: Pod, metadata: {name: agent-1, namespace: gpuctl, %s, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: %s, controller: true}]},
		spec: {nodeName: n1, containers: [{name: agent, image: "i:1"}]}}`, part, set.GetUID())))
	f.Create(f.Decode(fmt.Sprintf(`{apiVersion: coordination.k8s.io/v1, kind: Lease, metadata: {name: %s, namespace: gpuctl, %s}, spec: {holderIdentity: n1, leaseDurationSeconds: 600, renewTime: %q}}`,
		v1alpha1.AgentLease("n1"), part, time.Now().UTC().Format("2006-01-02T15:04:05.000000Z07:00"))))
	f.patch(report, `{"spec":{"gpus":2,"functions":[`+fmt.Sprintf(function, "18")+","+fmt.Sprintf(function, "2a")+`]}}`)
	f.Eventually(2*askedFor, "it reports, and some are lost", f.settles(1))
	f.remove(report)
	f.soonIs("no report", f.settles(0))
}

// askedFor is within which time an agent is asked for after it has written.
const askedFor = 4 * time.Second

// running returns a check of what runs of a lost device.
func (f *fed) running(node, uid string, units int64) func(context.Context) error {
	return func(context.Context) (err error) {
		f.Books(func(b *books.Books) {
			if d, _ := b.Snapshot().Device(uid); !d.Lost || d.Running != units || b.Snapshot().Free(node, h200) != 5 {
				err = fmt.Errorf("the device is %+v, %d are free", d, b.Snapshot().Free(node, h200))
			}
		})
		return err
	}
}

// done has a pod end that stays.
func (f *fed) done(node string) {
	pod := f.pod("job", node, 1)
	f.soonIs("a job runs", f.free(node, 5))
	f.patch(pod, `{"status":{"phase":"Succeeded"}}`, "status")
	f.soonIs("it is done", f.free(node, 6))
	f.remove(pod)
}

// assumes has the books say what was written before the watch does, and not go back.
func (f *fed) assumes() {
	f.t.Helper()
	before := f.device("assumed", 1)
	f.soonIs("it is seen", func(context.Context) error {
		if _, ok := f.Device(string(before.GetUID())); !ok {
			return errors.New("it is not")
		}
		return nil
	})
	f.told.Store(0)
	after := typedDevice(f.t, f.place(before, "n1", 1, ""))
	f.soonIs("that something changes is said", func(context.Context) error {
		if f.told.Load() == 0 {
			return errors.New("it is not")
		}
		return nil
	})
	for _, d := range []*v1alpha1.GPUDevice{after, typedDevice(f.t, before)} {
		f.Assume(d)
		if err := f.free("n1", 5)(f.t.Context()); err != nil {
			f.t.Errorf("after version %s was assumed: %v", d.ResourceVersion, err)
		}
	}
	// The watch has nothing that is as new as this.
	newest := after.DeepCopy()
	newest.ResourceVersion += "0"
	newest.Status.Placement, newest.Status.State = nil, v1alpha1.DevicePending
	f.Assume(newest)
	f.patch(before, `{"metadata":{"labels":{"team":"a"}}}`)
	f.Always(follows/2, "an older event undoes nothing", f.free("n1", 6))
	f.remove(before)
	f.soonIs("it goes", func(context.Context) error {
		if _, ok := f.Device(string(after.UID)); ok {
			return errors.New("it is there")
		}
		return nil
	})
	f.Assume(after)
	if _, ok := f.Device(string(after.UID)); ok {
		f.t.Error("what is gone is back")
	}
}

// followsHierarchies installs HNC's kind, or what is read of it, and takes it away.
func (f *fed) followsHierarchies() {
	f.namespace("above", "")
	f.Create(f.Decode(fmt.Sprintf(`{apiVersion: v1, kind: ResourceQuota, metadata: {name: gpus, namespace: above}, spec: {hard: {requests.%s: 1}}}`, h200)))
	f.patch(f.Decode("{apiVersion: v1, kind: Namespace, metadata: {name: above}}"), `{"metadata":{"labels":{"above.tree.hnc.x-k8s.io/depth":"0"}}}`)
	f.namespace("below", `below.tree.hnc.x-k8s.io/depth: "0", above.tree.hnc.x-k8s.io/depth: "1"`)
	f.soonIs("without HNC its labels are nothing", f.admits("below", "h200", 2, ""))
	crd := f.Create(f.Decode(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: hierarchyconfigurations.hnc.x-k8s.io,
		annotations: {api-approved.kubernetes.io: "https://github.com/kubernetes/enhancements"}},
		spec: {group: hnc.x-k8s.io, scope: Namespaced, names: {kind: HierarchyConfiguration, plural: hierarchyconfigurations}, versions: [{name: v1alpha2, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`))
	f.Eventually(soon, "HNC is installed", f.admits("below", "h200", 2, "GPU0611"))
	halted := f.Create(f.Decode(`{apiVersion: hnc.x-k8s.io/v1alpha2, kind: HierarchyConfiguration, metadata: {name: hierarchy, namespace: below}, status: {conditions: [{type: ActivitiesHalted, status: "True"}]}}`))
	f.soonIs("a namespace is halted", f.admits("below", "h200", 1, "GPU0608"))
	f.remove(halted)
	f.soonIs("and no longer", f.admits("below", "h200", 1, ""))
	f.remove(crd)
	f.Eventually(soon, "HNC is gone", f.admits("below", "h200", 2, ""))
}

// survivesRestart kills the API server, and changes things when it is back.
func (f *fed) survivesRestart() {
	f.Stop("kube-apiserver")
	time.Sleep(500 * time.Millisecond)
	if err := f.free("n1", 4)(f.t.Context()); err != nil {
		f.t.Errorf("while the API server is away: %v", err)
	}
	f.Cluster.Start("kube-apiserver")
	var d *unstructured.Unstructured
	f.Eventually(soon, "the API server is back", func(ctx context.Context) error {
		list, err := f.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).Namespace("acme-dev").List(ctx, metav1.ListOptions{})
		if err == nil {
			d = &list.Items[0]
		}
		return err
	})
	f.remove(d)
	f.Eventually(soon, "the device goes", f.free("n1", 8))
	f.place(f.device("train-c", 1), "n1", 1, "")
	f.Eventually(soon, "another one comes", f.free("n1", 7))
	f.Eventually(soon, "it is complete", func(context.Context) error {
		if !f.Synced() {
			return errors.New("it is not")
		}
		return nil
	})
}

// TestFeedOfCozystack reads the tree from releases, of a kind that comes later.
func TestFeedOfCozystack(t *testing.T) {
	c := testcluster.Start(t, testcluster.APIOnly())
	installCRDs(t, c)
	c.AddNode(testcluster.Node{Name: "n1", Resources: map[corev1.ResourceName]int64{h200: 8}})
	c.Create(c.Decode(fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: %s, maxCount: 8}}", h200)))
	f := feed(t, c, cluster.FeedOptions{Cozystack: true, Log: testr.New(t)})
	f.namespace("tenant-root", "")
	f.namespace("tenant-a", "")
	f.soonIs("nobody knows what it may have", f.admits("tenant-a", "h200", 1, "GPU0609"))
	f.Create(f.Decode(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: helmreleases.helm.toolkit.fluxcd.io},
		spec: {group: helm.toolkit.fluxcd.io, scope: Namespaced, names: {kind: HelmRelease, plural: helmreleases}, versions: [{name: v2, served: true, storage: true,
			schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`))
	release := func(name string, values any) *unstructured.Unstructured {
		text, err := json.Marshal(map[string]any{
			"apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": map[string]any{"name": name, "namespace": "tenant-root"}, "spec": map[string]any{"values": values},
		})
		if err != nil {
			t.Fatal(err)
		}
		return f.Decode(string(text))
	}
	f.Eventually(soon, "a release is taken", func(ctx context.Context) error {
		u := release("tenant-root", map[string]any{})
		_, err := f.Resource(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	a := f.Create(release("tenant-a", map[string]any{"resourceQuotas": map[string]any{h200: "2"}}))
	f.Eventually(soon, "its budget", f.admits("tenant-a", "h200", 3, "GPU0611"))
	f.soonIs("and what it allows", f.admits("tenant-a", "h200", 2, ""))
	f.patch(a, `{"spec":{"values":{"resourceQuotas":null}}}`)
	f.soonIs("no budget", f.admits("tenant-a", "h200", 3, ""))
	f.patch(a, `{"spec":{"values":["resourceQuotas"]}}`)
	f.soonIs("values that cannot be read", f.admits("tenant-a", "h200", 1, "GPU0610"))
	f.remove(a)
	f.soonIs("no release", f.admits("tenant-a", "h200", 1, "GPU0609"))
}
