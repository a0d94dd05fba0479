package bind

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/test/wire"
)

// The small world of the chaos: too few units, and budgets at three levels.
var (
	chaosNodes  = []string{"n1", "n2", "n3"}
	chaosServed = 6
	chaosLevels = []struct {
		name   string
		parent int // index; -1 for the root
		budget int
	}{{"root", -1, 14}, {"left", 0, 9}, {"right", 0, 8}, {"leaf", 1, 5}}
)

const clients = 64

// chaosTime is how long orders come: short, unless GPUCTL_CHAOS says how long.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("GPUCTL_CHAOS")
	if text == "" {
		return 20 * time.Second
	}
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("GPUCTL_CHAOS: %v", err)
	}
	return d
}

// TestChaos has many clients order and delete while leaders are killed and paused at any
// point: nothing is given twice, no budget is exceeded, no order is forgotten, and
// nothing is left over.
func TestChaos(t *testing.T) {
	w := newWorld(t)
	levels := w.levels()
	for _, name := range chaosNodes {
		w.serves(name, int64(chaosServed))
	}
	w.class("h200")
	h := w.record()

	ctx, cancel := context.WithTimeout(t.Context(), chaosTime(t))
	defer cancel()
	var running sync.WaitGroup
	var orders atomic.Int64
	for i := range clients {
		running.Go(func() { w.tenant(ctx, i, levels, &orders) })
	}
	kills := w.killLeaders(ctx)
	running.Wait()

	last := w.replica("last")
	w.settled(last)
	for _, ns := range levels {
		w.must(admin.DeleteAllOf(t.Context(), &v1alpha1.GPUDevice{}, client.InNamespace(ns)))
	}
	w.cluster.Eventually(time.Minute, "all devices are gone", func(ctx context.Context) error {
		all := &v1alpha1.GPUDeviceList{}
		if err := admin.List(ctx, all); err != nil {
			return err
		}
		if len(all.Items) > 0 {
			return fmt.Errorf("%d are left, one is %s/%s", len(all.Items), all.Items[0].Namespace, all.Items[0].Name)
		}
		return nil
	})
	events := h.stop()
	ops := checkHistory(t, events, levels)
	t.Logf("%d orders, %d leaders killed, %d changes of placements", orders.Load(), kills, len(ops))
	if kills < 3 || len(ops) < 20 {
		t.Errorf("only %d kills and %d changes", kills, len(ops))
	}
	if got, _ := porcupine.CheckOperationsVerbose(chaosModel, ops, time.Minute); got != porcupine.Ok {
		t.Errorf("no order of what happened explains it: %s", got)
	}
}

// levels makes the namespaces, each with its budget.
func (w *world) levels() (names []string) {
	for _, l := range chaosLevels {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "chaos-" + l.name + "-"}}
		if l.parent >= 0 {
			ns.Labels = map[string]string{v1alpha1.LabelParent: names[l.parent]}
		}
		w.must(admin.Create(w.Context(), ns))
		names = append(names, ns.Name)
		w.must(admin.Create(w.Context(), &corev1.ResourceQuota{
			ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: "gpus"},
			Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{"requests." + h200: resource.MustParse(strconv.Itoa(l.budget))}},
		}))
	}
	return names
}

// tenant orders, waits a little, deletes, and orders again, under few names.
func (w *world) tenant(ctx context.Context, seed int, levels []string, orders *atomic.Int64) {
	random := rand.New(rand.NewPCG(uint64(seed), 1))
	for ctx.Err() == nil {
		d := &v1alpha1.GPUDevice{
			ObjectMeta: metav1.ObjectMeta{Namespace: levels[random.IntN(len(levels))], Name: fmt.Sprint("order-", seed)},
			Spec:       v1alpha1.GPUDeviceSpec{ClassName: "h200", Count: int32(1 + random.IntN(4))},
		}
		if err := admin.Create(ctx, d); err == nil {
			orders.Add(1)
		}
		sleep(ctx, time.Duration(random.IntN(1500))*time.Millisecond)
		if random.IntN(8) > 0 {
			_ = admin.Delete(ctx, d)
			sleep(ctx, time.Duration(random.IntN(300))*time.Millisecond)
		}
	}
}

// killLeaders has one leader after another, and ends each at some point: at any time, or
// between the swap and the devices' writes, or after a device's write whose answer never
// comes. Some are only paused, and go on while the next one leads.
func (w *world) killLeaders(ctx context.Context) (kills int) {
	random := rand.New(rand.NewPCG(7, 7))
	for ; ctx.Err() == nil; kills++ {
		r := w.replica(fmt.Sprint("leader-", kills))
		w.leads(ctx, r)
		killed := make(chan struct{})
		var once sync.Once
		kill := func() { once.Do(func() { close(killed) }) }
		dead := func() bool {
			select {
			case <-killed:
				return true
			default:
				return false
			}
		}
		point, pause := random.IntN(3), random.IntN(3) == 0
		after := 1 + random.IntN(8)
		held := wire.NewGate()
		r.Set(func(x *wire.Exchange) error {
			switch {
			case dead() && pause:
				return held.Pass(x)
			case dead():
				return wire.ErrLost
			case point == 1 && x.Verb == http.MethodPut && x.What == "ledger" && x.N >= after:
				defer kill()
			case point == 2 && x.Verb == http.MethodPut && x.What == "status" && x.N >= after:
				defer kill()
				return x.Drop()
			}
			return x.Send()
		})
		select {
		case <-killed:
		case <-time.After(time.Duration(200+random.IntN(4000)) * time.Millisecond):
			kill()
		case <-ctx.Done():
			kill()
		}
		if !pause {
			r.stop()
			continue
		}
		go func() { // it wakes when others lead
			time.Sleep(2 * time.Second)
			close(held.Open)
			r.stop()
		}()
	}
	return kills
}

// leads waits until a replica has taken the ledger: who is killed before shows nothing.
func (w *world) leads(ctx context.Context, r *replica) {
	led := make(chan struct{})
	var once sync.Once
	r.Set(func(x *wire.Exchange) error {
		if err := x.Send(); err != nil || x.What != "ledger" || x.Verb != http.MethodPut {
			return err
		}
		once.Do(func() { close(led) })
		return nil
	})
	select {
	case <-led:
	case <-ctx.Done():
	case <-time.After(20 * time.Second):
		w.Error("a replica does not lead")
	}
}

// settled waits until nothing that waits could have units.
func (w *world) settled(r *replica) {
	w.Helper()
	w.cluster.Eventually(30*time.Second, "every order that fits is placed", func(context.Context) (err error) {
		if !r.Feed.Synced() {
			return errors.New("the feed is not complete")
		}
		r.Feed.View(func(b *books.Books, v cluster.View) {
			round := b.Begin()
			defer round.Close()
			for _, d := range v.Waiting() {
				if d.DeletionTimestamp == nil && d.Status.Placement == nil {
					if writes, refused := round.Place(string(d.UID)); refused == nil {
						err = fmt.Errorf("%s/%s waits, and %+v would do", d.Namespace, d.Name, writes)
					}
				}
			}
		})
		return err
	})
}

// history is what the API server says of devices, in the order in which it happened.
type history struct {
	mu     sync.Mutex
	events []happened
	cancel context.CancelFunc
	done   chan struct{}
}

// happened is a change of a device.
type happened struct {
	at        int64 // resourceVersion
	uid       string
	namespace string
	units     int
	node      string // "" for none, or none any more
}

// record watches all devices from now on.
func (w *world) record() *history {
	w.Helper()
	c, err := client.NewWithWatch(w.cluster.Config(), client.Options{Scheme: admin.Scheme()})
	w.must(err)
	all := &v1alpha1.GPUDeviceList{}
	w.must(c.List(w.Context(), all))
	ctx, cancel := context.WithCancel(context.Background())
	watched, err := c.Watch(ctx, &v1alpha1.GPUDeviceList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: all.ResourceVersion}})
	w.must(err)
	h := &history{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(h.done)
		for e := range watched.ResultChan() {
			d, ok := e.Object.(*v1alpha1.GPUDevice)
			if !ok {
				if ctx.Err() == nil {
					w.Errorf("the history ends: %+v", e.Object)
				}
				return
			}
			at, _ := strconv.ParseInt(d.ResourceVersion, 10, 64)
			one := happened{at: at, uid: string(d.UID), namespace: d.Namespace, units: int(d.Spec.Count)}
			if e.Type != "DELETED" {
				one.node = nodeOf(d)
			}
			h.mu.Lock()
			h.events = append(h.events, one)
			h.mu.Unlock()
		}
	}()
	return h
}

func (h *history) stop() []happened {
	time.Sleep(500 * time.Millisecond) // the last events are on their way
	h.cancel()
	<-h.done
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.events
}

// change is a device that got units, lost or moved them.
type change struct {
	level, units int
	from, to     int // indexes of nodes; -1 for none
}

// checkHistory looks at every moment: no node holds more than it serves, and no level has
// more than its budget. It returns the changes, each between the one before and its own.
func checkHistory(t *testing.T, events []happened, levels []string) (ops []porcupine.Operation) {
	t.Helper()
	index := map[string]int{"": -1}
	for i, name := range chaosNodes {
		index[name] = i
	}
	level := map[string]int{}
	for i, name := range levels {
		level[name] = i
	}
	now := newChaos()
	where, before := map[string]string{}, map[string]int64{}
	for _, e := range events {
		if was := where[e.uid]; was != e.node {
			c := change{level: level[e.namespace], units: e.units, from: index[was], to: index[e.node]}
			var ok bool
			if now, ok = now.step(c); !ok {
				t.Fatalf("at %d: %+v, and then there is %+v", e.at, c, now)
			}
			ops = append(ops, porcupine.Operation{ClientId: len(ops), Input: c, Call: before[e.uid], Return: e.at})
			where[e.uid] = e.node
		}
		before[e.uid] = e.at
	}
	return ops
}

// chaosState is what a sequential binder would have given.
type chaosState struct {
	nodes  [3]int
	levels [4]int
}

func newChaos() chaosState { return chaosState{} }

// step makes a change; ok is false where nobody may.
func (s chaosState) step(c change) (next chaosState, ok bool) {
	ok = true
	if c.from >= 0 {
		s.nodes[c.from] -= c.units
	}
	if c.to >= 0 {
		s.nodes[c.to] += c.units
		ok = s.nodes[c.to] <= chaosServed
	}
	sign := 0
	if c.from < 0 {
		sign++
	}
	if c.to < 0 {
		sign--
	}
	for l := c.level; l >= 0; l = chaosLevels[l].parent {
		s.levels[l] += sign * c.units
		ok = ok && (sign <= 0 || s.levels[l] <= chaosLevels[l].budget)
	}
	return s, ok
}

var chaosModel = porcupine.Model{
	Init: func() any { return newChaos() },
	Step: func(state, input, _ any) (bool, any) {
		next, ok := state.(chaosState).step(input.(change))
		return ok, next
	},
}
