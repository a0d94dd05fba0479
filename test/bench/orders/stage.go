package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/internal/bind"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

const (
	namespace = "tenant"
	name      = "nvidia.com/GH100_H200_SXM_141GB"
	patience  = time.Minute
)

// stage is a cluster with nodes and a class.
type stage struct {
	*options
	config *rest.Config
	client client.WithWatch
	made   atomic.Int64
	led    int
}

func newStage(ctx context.Context, config *rest.Config, o *options) (*stage, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	s := &stage{options: o, config: config}
	if err := s.install(ctx); err != nil {
		return nil, err
	}
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}},
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gpuctl"}},
		&v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: "h200"}, Spec: v1alpha1.GPUClassSpec{ResourceName: name, MaxCount: 8}},
		&v1alpha1.GPUClass{ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: v1alpha1.GPUClassSpec{ResourceName: "nvidia.com/NONE", MaxCount: 8}},
	}
	for i := range o.nodes {
		objects = append(objects, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("node-%03d", i)}})
	}
	err := s.each16(len(objects), func(i int) error {
		if err := s.client.Create(ctx, objects[i]); err != nil {
			return err
		}
		node, ok := objects[i].(*corev1.Node)
		if !ok {
			return nil
		}
		list := corev1.ResourceList{name: *resource.NewQuantity(8, resource.DecimalSI)}
		node.Status.Allocatable, node.Status.Capacity = list, list
		return s.client.Status().Update(ctx, node)
	})
	return s, err
}

// install creates the kinds.
func (s *stage) install(ctx context.Context) error {
	admin, err := client.New(s.config, client.Options{})
	if err != nil {
		return err
	}
	for _, kind := range []string{"gpudevices", "gpuclasses"} {
		text, err := fs.ReadFile(charts.FS, charts.GPUOperatorHooks+"/files/crds/gpuctl.dev_"+kind+".yaml")
		if err != nil {
			return err
		}
		crd := &unstructured.Unstructured{}
		if err := decode(text, crd); err != nil {
			return err
		}
		if err := admin.Create(ctx, crd); err != nil {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		s.client, err = client.NewWithWatch(s.config, client.Options{Scheme: cluster.CacheOptions().Scheme})
		return err == nil && errors.Join(s.client.List(ctx, &v1alpha1.GPUDeviceList{}), s.client.List(ctx, &v1alpha1.GPUClassList{})) == nil, nil
	})
}

// each16 does n things, as many at a time as there are workers.
func (s *stage) each16(n int, do func(i int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	var next atomic.Int64
	for range s.workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				errs[i] = do(int(i))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// order makes a new order.
func (s *stage) order(ctx context.Context, class string) (*v1alpha1.GPUDevice, error) {
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("order-%d", s.made.Add(1))},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: class, Count: 1},
	}
	return d, s.client.Create(ctx, d)
}

// round times one side, and clears the place.
func (s *stage) round(ctx context.Context, side func(context.Context) error, rates *[]float64) error {
	began := time.Now()
	if err := side(ctx); err != nil {
		return err
	}
	*rates = append(*rates, float64(s.orders)/time.Since(began).Seconds())
	return s.clearHeld(ctx)
}

// bare makes the writes that an order costs: its own, the finalizer, the placement.
func (s *stage) bare(ctx context.Context) error {
	return s.each16(s.orders, func(i int) error {
		d, err := s.order(ctx, "h200")
		if err != nil {
			return err
		}
		d.Finalizers = []string{v1alpha1.FinalizerUnits}
		if err := s.client.Update(ctx, d); err != nil {
			return err
		}
		place(d, fmt.Sprintf("node-%03d", i/8), name, metav1.Now())
		return s.client.Status().Update(ctx, d)
	})
}

// binder orders, and waits until all is held.
func (s *stage) binder(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	held, err := s.watchHeld(ctx)
	if err != nil {
		return err
	}
	if err := s.each16(s.orders, func(int) error {
		_, err := s.order(ctx, "h200")
		return err
	}); err != nil {
		return err
	}
	for range s.orders {
		select {
		case <-held:
		case <-ctx.Done():
			return errors.New("not all orders were placed")
		}
	}
	return nil
}

// watchHeld tells the name of each device once it is held.
func (s *stage) watchHeld(ctx context.Context) (<-chan string, error) {
	all := &v1alpha1.GPUDeviceList{}
	if err := s.client.List(ctx, all); err != nil {
		return nil, err
	}
	w, err := s.client.Watch(ctx, &v1alpha1.GPUDeviceList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: all.ResourceVersion}})
	if err != nil {
		return nil, err
	}
	out := make(chan string, 100_000)
	go func() {
		told := map[string]bool{}
		for e := range w.ResultChan() {
			if d, ok := e.Object.(*v1alpha1.GPUDevice); ok && d.Status.HoldsUnits() && !told[d.Name] {
				told[d.Name] = true
				out <- d.Name
			}
		}
	}()
	return out, nil
}

// each orders at a rate, and returns how long each order took.
func (s *stage) each(ctx context.Context) ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, s.length+patience)
	defer cancel()
	held, err := s.watchHeld(ctx)
	if err != nil {
		return nil, err
	}
	began := map[string]time.Time{}
	var took []time.Duration
	tick := time.NewTicker(time.Second / time.Duration(s.rate))
	defer tick.Stop()
	for end := time.Now().Add(s.length); ; {
		select {
		case at := <-held:
			took = append(took, time.Since(began[at]))
			if time.Now().After(end) && len(took) == len(began) {
				return took, nil
			}
		case <-tick.C:
			if time.Now().After(end) {
				if len(took) == len(began) {
					return took, nil
				}
				continue
			}
			began[fmt.Sprintf("order-%d", s.made.Load()+1)] = time.Now()
			if _, err := s.order(ctx, "h200"); err != nil {
				return nil, err
			}
		case <-ctx.Done():
			return nil, errors.New("not all orders were placed")
		}
	}
}

// hopeless makes orders that nothing can meet.
func (s *stage) hopeless(ctx context.Context, n int) error {
	return s.each16(n, func(int) error {
		_, err := s.order(ctx, "none")
		return err
	})
}

// clearHeld deletes what is placed.
func (s *stage) clearHeld(ctx context.Context) error {
	return s.remove(ctx, func(d *v1alpha1.GPUDevice) bool { return d.Spec.ClassName == "h200" })
}

func (s *stage) clear(ctx context.Context) error {
	return s.remove(ctx, func(*v1alpha1.GPUDevice) bool { return true })
}

func (s *stage) remove(ctx context.Context, which func(*v1alpha1.GPUDevice) bool) error {
	return wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		all := &v1alpha1.GPUDeviceList{}
		if err := s.client.List(ctx, all); err != nil {
			return false, err
		}
		var left []*v1alpha1.GPUDevice
		for i := range all.Items {
			if which(&all.Items[i]) {
				left = append(left, &all.Items[i])
			}
		}
		_ = s.each16(len(left), func(i int) error { // whoever else deletes it
			left[i].Finalizers = nil
			_ = s.client.Update(ctx, left[i])
			return s.client.Delete(ctx, left[i])
		})
		return len(left) == 0, nil
	})
}

// withBinder does something while a binder leads.
func (s *stage) withBinder(ctx context.Context, do func(context.Context) error) error {
	running, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	c, err := cluster.ForConfig(s.config)
	if err != nil {
		return err
	}
	held, err := cache.New(s.config, cluster.CacheOptions())
	if err != nil {
		return err
	}
	var binder *bind.Binder
	watcher := cluster.NewWatcher(c, held, func() {}, logr.Discard())
	feed := cluster.NewFeed(c, watcher, cluster.FeedOptions{
		Namespace: "gpuctl", Tenants: labels.Everything(), Log: logr.Discard(), Changed: func() { binder.Changed() },
	})
	s.led++
	holder := fmt.Sprint("bench-", s.led)
	ledger := bind.New(bind.Options{Client: s.client, Live: s.client, Namespace: "gpuctl", Holder: holder, Now: time.Now})
	binder = bind.NewBinder(bind.BinderOptions{Ledger: ledger, Feed: feed, Client: s.client, Live: s.client, Now: time.Now, Log: logr.Discard()})
	for _, start := range []func(context.Context) error{held.Start, watcher.Start, feed.Start, binder.Start} {
		all.Go(func() { _ = start(running) })
	}
	err = wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		m := &corev1.ConfigMap{}
		if err := s.client.Get(ctx, client.ObjectKey{Namespace: "gpuctl", Name: v1alpha1.LedgerName}, m); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		l, err := v1alpha1.DecodeLedger(m.Data)
		return l.Holder == holder, err
	})
	if err != nil {
		return fmt.Errorf("the binder does not lead: %w", err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		all := &v1alpha1.GPUDeviceList{}
		err := s.client.List(ctx, all)
		return err == nil && !slices.ContainsFunc(all.Items, func(d v1alpha1.GPUDevice) bool { return len(d.Status.Conditions) == 0 }), err
	})
	if err != nil {
		return fmt.Errorf("not all that wait are told why: %w", err)
	}
	time.Sleep(time.Second) // nothing is on its way
	return do(ctx)
}
