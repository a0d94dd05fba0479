package bind

import (
	"context"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
	"github.com/gpuctl/gpuctl/test/kinds"
	"github.com/gpuctl/gpuctl/test/wire"
)

var (
	shared  = cluster.NewShared(cluster.APIOnly())
	install sync.Once
	admin   client.Client
)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

// world is one test's part of the cluster.
type world struct {
	*testing.T
	cluster *cluster.Cluster
	ns      string
	parties int
}

// newWorld returns a namespace with nothing in it. Tests do not run at the same time: a
// leader fences the devices of all namespaces.
func newWorld(t *testing.T) *world {
	t.Helper()
	c := shared.For(t)
	install.Do(func() { admin = kinds.Install(t, c) })
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "bind-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, cluster: c, ns: ns.Name}
	t.Cleanup(w.clear)
	return w
}

// party is one process that may lead.
type party struct {
	*Ledger
	*wire.Wire
}

// party returns a ledger behind a wire of its own.
func (w *world) party(holder string) party {
	w.Helper()
	return w.partyAs(w.cluster.Config(), holder)
}

func (w *world) partyAs(config *rest.Config, holder string) party {
	w.Helper()
	line := &wire.Wire{}
	config.Wrap(line.Wrap)
	c, err := client.New(config, client.Options{Scheme: admin.Scheme(), Mapper: admin.RESTMapper()})
	if err != nil {
		w.Fatal(err)
	}
	w.parties++
	fast := time.Duration(w.parties) * time.Hour // no two clocks agree
	now := func() time.Time { return time.Now().Add(fast) }
	return party{Wire: line, Ledger: New(Options{Client: c, Live: c, Namespace: w.ns, Holder: holder, Now: now})}
}

// leader returns a party that leads.
func (w *world) leader(holder string) party {
	w.Helper()
	p := w.party(holder)
	w.must(p.Lead(w.Context()))
	return p
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// commit is a Commit that must succeed.
func (w *world) commit(p party, entries ...Entry) []Outcome {
	w.Helper()
	out, err := p.Commit(w.Context(), entries)
	w.must(err)
	return out
}

// device creates an order that may be placed.
func (w *world) device(name string) *v1alpha1.GPUDevice {
	w.Helper()
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name, Finalizers: []string{v1alpha1.FinalizerUnits}},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: 1},
	}
	w.must(admin.Create(w.Context(), d))
	return d
}

// get reads a device; one that is gone has no name.
func (w *world) get(name string) *v1alpha1.GPUDevice {
	w.Helper()
	d := &v1alpha1.GPUDevice{}
	w.must(client.IgnoreNotFound(admin.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, d)))
	return d
}

// edit changes a device as its tenant may.
func (w *world) edit(name string) {
	w.Helper()
	d := w.get(name)
	metav1.SetMetaDataAnnotation(&d.ObjectMeta, "edited", d.ResourceVersion)
	w.must(admin.Update(w.Context(), d))
}

// remove deletes a device for good.
func (w *world) remove(name string) {
	w.Helper()
	d := w.get(name)
	d.Finalizers = nil
	w.must(admin.Update(context.Background(), d))
	w.must(admin.Delete(context.Background(), d))
}

// nodes returns where the devices of the namespace are, by name.
func (w *world) nodes() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, d := range w.list() {
		out[d.Name] = nodeOf(&d)
	}
	return out
}

func (w *world) list() []v1alpha1.GPUDevice {
	w.Helper()
	all := &v1alpha1.GPUDeviceList{}
	w.must(admin.List(context.Background(), all, client.InNamespace(w.ns)))
	return all.Items
}

func (w *world) clear() {
	for _, d := range w.list() {
		d.Finalizers = nil
		w.must(admin.Update(context.Background(), &d))
		w.must(client.IgnoreNotFound(admin.Delete(context.Background(), &d)))
	}
}

// stored returns the ledger that is stored.
func (w *world) stored() (*corev1.ConfigMap, v1alpha1.Ledger) {
	w.Helper()
	m := &corev1.ConfigMap{}
	w.must(admin.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: v1alpha1.LedgerName}, m))
	l, err := v1alpha1.DecodeLedger(m.Data)
	w.must(err)
	return m, l
}

func nodeOf(d *v1alpha1.GPUDevice) string {
	if d.Status.Placement == nil {
		return ""
	}
	return d.Status.Placement.Node
}

// place decides that a device goes to a node.
func place(d *v1alpha1.GPUDevice, node string) Entry {
	return Entry{Device: d, Placement: &v1alpha1.Placement{
		Node: node, ResourceName: "nvidia.com/GH100_H200_SXM_141GB", Units: d.Spec.Count, Since: metav1.NewMicroTime(time.Now()),
	}}
}

// results returns what became of each entry.
func results(out []Outcome) []Result {
	all := []Result{}
	for _, o := range out {
		all = append(all, o.Result)
	}
	return all
}

func repeated[T any](v T, n int) []T { return slices.Repeat([]T{v}, n) }
