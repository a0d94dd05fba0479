package attach

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/bind"
	"github.com/gpuctl/gpuctl/internal/cluster"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
	"github.com/gpuctl/gpuctl/test/kinds"
	"github.com/gpuctl/gpuctl/test/wire"
)

var (
	shared  = testcluster.NewShared(testcluster.APIOnly())
	install sync.Once
	admin   client.WithWatch
)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(shared.Main(m))
}

const (
	h200 = "nvidia.com/GH100_H200_SXM_141GB"
	// placed is within which time the binder has done what there is to do.
	placed = 10 * time.Second
)

// world is one test's part of the cluster: a namespace, a class of H200s and a node of 8.
type world struct {
	*testing.T
	cluster *testcluster.Cluster
	ns      string
	clock   atomic.Int64 // how far it is ahead
}

// newWorld returns a world in which nobody leads. Tests do not run at the same time.
func newWorld(t *testing.T) *world {
	t.Helper()
	c := shared.For(t)
	install.Do(func() { admin = kinds.Install(t, c) })
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "attach-"}}
	if err := admin.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, cluster: c, ns: ns.Name}
	t.Cleanup(w.clear)
	w.create(&v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: "h200"}, Spec: v1alpha1.GPUClassSpec{ResourceName: h200, MaxCount: 8}})
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	w.create(n)
	list := corev1.ResourceList{h200: *resource.NewQuantity(8, resource.DecimalSI)}
	n.Status.Allocatable, n.Status.Capacity = list, list
	w.must(admin.Status().Update(t.Context(), n))
	seconds, holder, now := int32(3600), "leader", metav1.NowMicro()
	w.create(&coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: v1alpha1.ControllerLease},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &seconds, RenewTime: &now},
	})
	return w
}

func (w *world) must(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

// create creates an object that goes when the test ends.
func (w *world) create(o client.Object) {
	w.Helper()
	w.must(admin.Create(w.Context(), o))
	w.Cleanup(func() { w.must(client.IgnoreNotFound(admin.Delete(context.Background(), o))) })
}

func (w *world) clear() {
	for _, d := range w.devices() {
		d.Finalizers = nil
		w.must(client.IgnoreNotFound(admin.Update(context.Background(), &d)))
		w.must(client.IgnoreNotFound(admin.Delete(context.Background(), &d)))
	}
}

func (w *world) devices() []v1alpha1.GPUDevice {
	w.Helper()
	all := &v1alpha1.GPUDeviceList{}
	w.must(admin.List(context.Background(), all, client.InNamespace(w.ns)))
	return all.Items
}

// versions are all devices as they are stored.
func (w *world) versions() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, d := range w.devices() {
		out[d.Name] = d.ResourceVersion
	}
	return out
}

// device reads a device of a name.
func (w *world) device(name string) *v1alpha1.GPUDevice {
	w.Helper()
	d := &v1alpha1.GPUDevice{}
	w.must(admin.Get(w.Context(), client.ObjectKey{Namespace: w.ns, Name: name}, d))
	return d
}

// order creates an order as a tenant does.
func (w *world) order(name string, count int32) {
	w.Helper()
	w.must(admin.Create(w.Context(), &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: count},
	}))
}

// states say of each device what it is, and which VMI has it: "Held", "Bound vm starting",
// "Attached vm", "Held going". One that was made from a template is called "made".
func (w *world) states() map[string]string {
	w.Helper()
	out := map[string]string{}
	for _, d := range w.devices() {
		name, text := d.Name, string(d.Status.State)
		if d.Labels[v1alpha1.LabelTemplateDevice] != "" {
			name = "made"
		}
		if a := d.Status.Attachment; a != nil {
			text += " " + a.VMIName
			if a.VMIUID == "" {
				text += " starting"
			}
		}
		if d.DeletionTimestamp != nil {
			text += " going"
		}
		out[name] = text
	}
	return out
}

// are wants the devices to be so, and no others to be there.
func (w *world) are(want map[string]string) {
	w.Helper()
	if diff := cmp.Diff(want, w.states()); diff != "" {
		w.Fatalf("devices (-want +got):\n%s", diff)
	}
}

// become wants the devices to be so within a short time.
func (w *world) become(want map[string]string) {
	w.Helper()
	w.cluster.Eventually(placed, "the devices are as they should be", func(context.Context) error {
		if diff := cmp.Diff(want, w.states()); diff != "" {
			return fmt.Errorf("devices (-want +got):\n%s", diff)
		}
		return nil
	})
}

// passes moves the clock.
func (w *world) passes(d time.Duration) { w.clock.Add(int64(d)) }

func (w *world) now() time.Time { return time.Now().Add(time.Duration(w.clock.Load())) }

// process is a replica with what takes devices and gives them back.
type process struct {
	*Starter
	*wire.Wire
	collector *Collector
	feed      *cluster.Feed
	world     *world
}

// replica starts one, that does not lead.
func (w *world) replica() *process {
	w.Helper()
	p := &process{world: w, Wire: &wire.Wire{}}
	p.feed = w.feed(nil)
	config := w.cluster.Config()
	config.Wrap(p.Wrap)
	c, err := client.New(config, client.Options{Scheme: admin.Scheme(), Mapper: admin.RESTMapper()})
	w.must(err)
	o := Options{
		Feed: p.feed, Client: c, Live: c, Now: w.now, Log: logr.Discard(),
		Lease: types.NamespacedName{Namespace: w.ns, Name: v1alpha1.ControllerLease},
	}
	leads := make(chan struct{})
	close(leads)
	p.Starter, p.collector = NewStarter(o), NewCollector(o, leads)
	w.cluster.Eventually(placed, "the caches are filled", func(context.Context) error {
		if !p.feed.Synced() {
			return errNotYet
		}
		return nil
	})
	return p
}

// feed starts what a replica knows of the cluster.
func (w *world) feed(changed func()) *cluster.Feed {
	w.Helper()
	config := w.cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	c, err := cluster.ForConfig(config)
	w.must(err)
	held, err := cache.New(config, cluster.CacheOptions())
	w.must(err)
	tenants, err := labels.Parse("kubernetes.io/metadata.name=" + w.ns)
	w.must(err)
	watcher := cluster.NewWatcher(c, held, func() {}, logr.Discard())
	feed := cluster.NewFeed(c, watcher, cluster.FeedOptions{Namespace: w.ns, Tenants: tenants, Log: logr.Discard(), Changed: changed})
	ctx, cancel := context.WithCancel(w.Context())
	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{held.Start, watcher.Start, feed.Start} {
		running.Go(func() { _ = start(ctx) })
	}
	w.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return feed
}

// leads has a binder lead.
func (w *world) leads() {
	w.Helper()
	var b atomic.Pointer[bind.Binder]
	feed := w.feed(func() {
		if binder := b.Load(); binder != nil {
			binder.Changed()
		}
	})
	b.Store(bind.NewBinder(bind.BinderOptions{
		Ledger: bind.New(bind.Options{Client: admin, Live: admin, Namespace: w.ns, Holder: "leader", Now: time.Now}),
		Feed:   feed, Client: admin, Live: admin, Now: time.Now, Log: logr.Discard(),
	}))
	ctx, cancel := context.WithCancel(w.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = b.Load().Start(ctx)
	}()
	w.Cleanup(func() {
		cancel()
		<-done
	})
}

// collects has the collector look once, when it has seen all devices and VMIs as they are.
func (p *process) collects() {
	w := p.world
	w.Helper()
	p.knows()
	p.collector.pass(w.Context())
}

// knows waits until the replica has seen the devices and the VMIs as they are.
func (p *process) knows() {
	w := p.world
	w.Helper()
	w.cluster.Eventually(placed, "all is seen", func(context.Context) error {
		seen := map[string]string{}
		for _, d := range p.feed.Devices() {
			if d.Namespace == w.ns {
				seen[d.Name] = d.ResourceVersion
			}
		}
		if diff := cmp.Diff(w.versions(), seen); diff != "" {
			return errors.New(diff)
		}
		return nil
	})
}

// stopsAt ends the process at its write of this number, counted from 0, which is handled
// or not: nothing that it sends after that arrives.
func (p *process) stopsAt(write int, handled bool) (ctx context.Context) {
	ctx, stop := context.WithCancel(p.world.Context())
	var mu sync.Mutex
	p.Set(func(x *wire.Exchange) error {
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() != nil {
			return wire.ErrLost
		}
		if x.Verb == "GET" {
			return x.Send()
		}
		write--
		if write >= 0 {
			return x.Send()
		}
		stop()
		if handled {
			return x.Drop()
		}
		return wire.ErrLost
	})
	return ctx
}

// writes are the writes of what a process has done since it was last asked.
func (p *process) writes() []string {
	out := []string{}
	return append(out, slices.DeleteFunc(p.Took(), func(line string) bool { return strings.HasPrefix(line, "GET") })...)
}
