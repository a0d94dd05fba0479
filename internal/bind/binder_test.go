package bind

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/test/wire"
)

const h200 = "nvidia.com/GH100_H200_SXM_141GB"

// placed is within which time an order has to have what it can have.
const placed = 5 * time.Second

// replica is a binder with its feed.
type replica struct {
	*Binder
	*wire.Wire
	logs
	stop context.CancelFunc
	done chan struct{}
}

// replica starts a process that leads.
func (w *world) replica(holder string) *replica {
	w.Helper()
	config := w.cluster.Config()
	config.WarningHandler = rest.NoWarnings{}
	c, err := cluster.ForConfig(config)
	w.must(err)
	held, err := cache.New(config, cluster.CacheOptions())
	w.must(err)
	var r replica
	tenants, err := labels.Parse("kubernetes.io/metadata.name notin (default,kube-system,kube-public,kube-node-lease)")
	w.must(err)
	watcher := cluster.NewWatcher(c, held, func() {}, logr.Discard())
	feed := cluster.NewFeed(c, watcher, cluster.FeedOptions{
		Namespace: w.ns, Tenants: tenants, Log: testr.New(w.T), Changed: func() { r.Changed() },
	})
	p := w.party(holder)
	r.Wire = p.Wire
	r.Binder = NewBinder(BinderOptions{
		Ledger: p.Ledger, Feed: feed, Client: p.Client, Live: p.Live, Now: time.Now, Log: r.logger(w.T, holder),
	})
	ctx, cancel := context.WithCancel(w.Context())
	r.stop, r.done = cancel, make(chan struct{})
	for _, start := range []func(context.Context) error{held.Start, watcher.Start, feed.Start} {
		go func() { _ = start(ctx) }()
	}
	go func() {
		defer close(r.done)
		_ = r.Start(ctx)
	}()
	w.Cleanup(func() { r.ends() })
	return &r
}

// ends stops the process, and waits until it has ended.
func (r *replica) ends() {
	r.stop()
	<-r.done
}

// class creates a class of H200s.
func (w *world) class(name string) *v1alpha1.GPUClass {
	w.Helper()
	c := &v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.GPUClassSpec{ResourceName: h200, MaxCount: 8}}
	w.must(admin.Create(w.Context(), c))
	w.Cleanup(func() { w.must(client.IgnoreNotFound(admin.Delete(context.Background(), c))) })
	return c
}

// serves has a node serve so many H200s.
func (w *world) serves(name string, units int64) {
	w.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := admin.Get(w.Context(), client.ObjectKeyFromObject(n), n); client.IgnoreNotFound(err) != nil {
		w.Fatal(err)
	} else if err != nil {
		w.must(admin.Create(w.Context(), n))
		w.Cleanup(func() { w.must(client.IgnoreNotFound(admin.Delete(context.Background(), n))) })
	}
	list := corev1.ResourceList{h200: *resource.NewQuantity(units, resource.DecimalSI)}
	n.Status.Allocatable, n.Status.Capacity = list, list
	w.must(admin.Status().Update(w.Context(), n))
}

// order creates an order as a tenant does.
func (w *world) order(name string, count int32) *v1alpha1.GPUDevice {
	w.Helper()
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: name}, Spec: v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: count},
	}
	w.must(admin.Create(w.Context(), d))
	return d
}

// is what a device says: "Held n1", "Pending NoUnits", "Lost n1", or "" for none.
func (w *world) is(name string) string {
	d := w.get(name)
	held := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.ConditionHeld)
	switch {
	case d.Name == "":
		return ""
	case d.Status.Placement != nil:
		return string(d.Status.State) + " " + d.Status.Placement.Node
	case held != nil:
		return string(d.Status.State) + " " + held.Reason
	}
	return string(d.Status.State)
}

// soon wants devices to say something within a short time.
func (w *world) soon(want map[string]string) {
	w.Helper()
	var diff string
	for end := time.Now().Add(placed); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		got := map[string]string{}
		for name := range want {
			got[name] = w.is(name)
		}
		if diff = cmp.Diff(want, got); diff == "" {
			return
		}
	}
	w.Fatalf("devices (-want +got):\n%s", diff)
}

// An order is placed as soon as it fits, in the order of arrival, and told why as long as
// it does not.
func TestBinderPlacesOrders(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.serves("n2", 4)
	r := w.replica("a")
	w.order("early", 4)
	w.soon(map[string]string{"early": "Pending NotAllowed"}) // there is no such class
	w.class("h200")
	w.soon(map[string]string{"early": "Held n2"})
	w.order("b", 6)
	w.soon(map[string]string{"b": "Held n1"})
	w.order("c", 3)
	w.order("d", 2)
	w.soon(map[string]string{"c": "Pending NoUnits", "d": "Held n1"})
	if d := w.get("d"); len(d.Finalizers) != 1 || d.Status.Origin == nil || d.Status.Origin.Kind != v1alpha1.OriginOrder {
		t.Errorf("placed without a finalizer or an origin: %v, %+v", d.Finalizers, d.Status.Origin)
	}
	w.must(admin.Delete(t.Context(), w.get("b")))
	w.soon(map[string]string{"b": "", "c": "Held n1"})
	w.must(admin.Delete(t.Context(), w.get("c")))
	w.must(admin.Delete(t.Context(), w.get("d")))
	w.soon(map[string]string{"c": "", "d": "", "early": "Held n2"})
	r.Took()
	time.Sleep(500 * time.Millisecond)
	if log := r.Took(); len(log) > 0 {
		t.Errorf("nothing happens, and there are requests: %v", log)
	}
}

// An order that cannot be met is passed by, and no budget is exceeded, whoever admitted
// the orders.
func TestBinderKeepsBudgets(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	quota := &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "gpus"},
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + h200: resource.MustParse("4")}},
	}
	w.must(admin.Create(t.Context(), quota))
	w.replica("a")
	w.order("a", 3)
	w.soon(map[string]string{"a": "Held n1"})
	w.order("b", 2)
	w.order("c", 1)
	w.soon(map[string]string{"b": "Pending OverBudget", "c": "Held n1"})
	quota.Spec.Hard["requests."+h200] = resource.MustParse("6")
	w.must(admin.Update(t.Context(), quota))
	w.soon(map[string]string{"b": "Held n1"})
	quota.Spec.Hard["requests."+h200] = resource.MustParse("1") // below what is in use
	w.must(admin.Update(t.Context(), quota))
	w.order("d", 1)
	w.soon(map[string]string{"a": "Held n1", "b": "Held n1", "c": "Held n1", "d": "Pending OverBudget"})
}

// A node that loses units gives up what it must: reservations move, and what cannot is
// lost until the units are back.
func TestBinderFollowsNodes(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	c := w.class("h200")
	w.replica("a")
	w.order("a", 4)
	w.soon(map[string]string{"a": "Held n1"})
	time.Sleep(1100 * time.Millisecond) // creation is told in seconds
	w.order("b", 4)
	w.soon(map[string]string{"b": "Held n1"})
	w.serves("n2", 4)
	w.serves("n1", 7)
	w.soon(map[string]string{"a": "Held n1", "b": "Held n2"})
	w.serves("n1", 0)
	w.soon(map[string]string{"a": "Lost n1", "b": "Held n2"})
	lost := w.get("a").Status
	if held := meta.FindStatusCondition(lost.Conditions, v1alpha1.ConditionHeld); lost.Placement.LostSince == nil || held.Reason != v1alpha1.ReasonLost {
		t.Errorf("lost: %+v", lost)
	}
	w.must(admin.Delete(t.Context(), c)) // what is held stays held
	w.serves("n1", 4)
	w.soon(map[string]string{"a": "Held n1", "b": "Held n2"})
	if d := w.get("a"); d.Status.Placement.Since != lost.Placement.Since || d.Status.Placement.LostSince != nil {
		t.Errorf("healed: %+v", d.Status.Placement)
	}
	w.must(admin.Delete(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n2"}}))
	w.soon(map[string]string{"a": "Held n1", "b": "Lost n2"})
	w.serves("n1", 8)
	w.soon(map[string]string{"a": "Held n1", "b": "Held n1"})
}

// asks has devices ask for a node together, as a webhook does.
func (w *world) asks(id string, names ...string) {
	w.Helper()
	w.asksFor("", id, names...)
}

// asksFor has devices ask for a node with what their launcher needs.
func (w *world) asksFor(launcher, id string, names ...string) {
	w.Helper()
	lowest := slices.MinFunc(names, func(a, b string) int { return strings.Compare(string(w.get(a).UID), string(w.get(b).UID)) })
	for _, name := range names {
		d := w.get(name)
		now := metav1.NewMicroTime(time.Now())
		d.Status.Attachment = &v1alpha1.Attachment{VMIName: "vm", RequestID: id, Since: now}
		d.Status.BindRequest = &v1alpha1.BindRequest{RequestID: id, RequestedAt: now, Devices: int32(len(names))}
		if name == lowest {
			d.Status.BindRequest.Launcher = launcher
		}
		d.Status.State = d.Status.Derive()
		w.must(admin.Status().Update(w.Context(), d))
	}
}

// answers returns what the devices of a set were answered.
func (w *world) answers(names ...string) (out []string) {
	for _, name := range names {
		q := w.get(name).Status.BindRequest
		switch {
		case q == nil || q.Answer == nil:
			out = append(out, "")
		case q.Answer.Refusal != nil:
			out = append(out, q.Answer.Refusal.Code)
		default:
			out = append(out, q.Answer.Node)
		}
	}
	return out
}

func (w *world) answered(want []string, names ...string) {
	w.Helper()
	var diff string
	for end := time.Now().Add(placed); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if diff = cmp.Diff(want, w.answers(names...)); diff == "" {
			return
		}
	}
	w.Fatalf("answers (-want +got):\n%s", diff)
}

// A set gets one node, or a refusal; it is not answered before all of it has asked.
func TestBinderAnswersSets(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 4)
	w.class("h200")
	w.replica("a")
	w.order("a", 3)
	w.soon(map[string]string{"a": "Held n1"})
	w.serves("n2", 8)
	w.order("b", 3)
	w.soon(map[string]string{"b": "Held n2"})
	id := func(n int) string { return fmt.Sprintf("%032x", n) }
	w.asks(id(1), "a", "b")
	w.answered([]string{"n2", "n2"}, "a", "b")
	w.soon(map[string]string{"a": "Bound n2", "b": "Bound n2"})

	w.order("c", 4)
	w.soon(map[string]string{"c": "Held n1"})
	w.order("d", 1)
	w.soon(map[string]string{"d": "Held n2"})
	w.asks(id(2), "c", "d")
	lowest := map[bool][]string{true: {"GPU0705", ""}, false: {"", "GPU0705"}}[w.get("c").UID < w.get("d").UID]
	w.answered(lowest, "c", "d")
	w.soon(map[string]string{"c": "Held n1", "d": "Held n2"})
}

// A device that holds units without a finalizer, as after an uninstall, gets one from who
// leads next, and keeps its units.
func TestBinderHoldsAgain(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	a := w.replica("a")
	w.order("a", 4)
	w.soon(map[string]string{"a": "Held n1"})
	a.ends()
	bare := w.get("a")
	bare.Finalizers = nil
	w.must(admin.Update(t.Context(), bare))
	w.order("b", 1)
	w.replica("b")
	w.soon(map[string]string{"a": "Held n1", "b": "Held n1"})
	if got := w.get("a"); !slices.Contains(got.Finalizers, v1alpha1.FinalizerUnits) || !cmp.Equal(got.Status, bare.Status) {
		t.Errorf("finalizers %v, status (-before +after):\n%s", got.Finalizers, cmp.Diff(bare.Status, got.Status))
	}
}

// Who leads next goes by what the API server says.
func TestBinderHandsOver(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	a := w.replica("a")
	w.order("a", 4)
	w.soon(map[string]string{"a": "Held n1"})
	b := w.replica("b") // takes the term though a does not know
	w.cluster.Eventually(placed, "b leads", func(context.Context) error {
		if _, l := w.stored(); l.Holder != "b" {
			return fmt.Errorf("%s leads", l.Holder)
		}
		return nil
	})
	w.order("b", 4)
	w.soon(map[string]string{"b": "Held n1"})
	w.order("c", 1)
	w.soon(map[string]string{"c": "Pending NoUnits"})
	a.ends()
	b.ends()
	w.replica("c")
	w.must(admin.Delete(t.Context(), w.get("a")))
	w.soon(map[string]string{"a": "", "c": "Held n1"})
}
