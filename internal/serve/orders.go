package serve

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/attach"
	"github.com/gpuctl/gpuctl/internal/bind"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/webhook"
)

// meetOrders makes the manager keep the books, on every replica, and give orders their
// units, on the one that leads.
func (p *process) meetOrders() error {
	o := &p.s.Orders
	if !o.Enabled {
		return nil
	}
	tenants, err := labels.Parse(o.Tenants)
	if err != nil {
		return err
	}
	listed := make([]gpu.ResourceName, len(o.ResourceNames))
	for i, name := range o.ResourceNames {
		listed[i] = gpu.ResourceName(name)
	}
	var binder *bind.Binder
	var publisher *bind.Publisher
	var collector *attach.Collector
	p.feed = cluster.NewFeed(p.client, p.watcher, cluster.FeedOptions{
		Namespace: o.Namespace, Listed: listed, Tenants: tenants, Cozystack: o.Provider == "cozystack", Log: p.o.Log.WithName("feed"),
		Changed: func() {
			binder.Changed()
			publisher.Changed()
			collector.Changed()
		},
	})
	common := bind.BinderOptions{
		Feed: p.feed, Client: p.m.GetClient(), Live: p.m.GetAPIReader(), Now: time.Now, Log: p.o.Log.WithName("binder"),
		Ledger: bind.New(bind.Options{
			Client: p.m.GetClient(), Live: p.m.GetAPIReader(), Namespace: o.Namespace, Holder: p.o.Instance, Now: time.Now,
		}),
	}
	starts := attach.Options{
		Feed: p.feed, Client: common.Client, Live: common.Live, Now: time.Now, Log: p.o.Log.WithName("starts"),
		Launcher: func(ctx context.Context, v *kubevirt.VirtualMachineInstance) (string, error) {
			return p.feed.LauncherOf(ctx, common.Live, v)
		},
	}
	if l := &p.s.LeaderElection; l.Enabled {
		starts.Lease = types.NamespacedName{Namespace: l.Namespace, Name: v1alpha1.ControllerLease}
	}
	p.starter, collector = attach.NewStarter(starts), attach.NewCollector(starts, p.m.Elected())
	binder, publisher = bind.NewBinder(common), bind.NewPublisher(common, o.Namespace)
	return errors.Join(p.m.Add(p.feed), p.m.Add(collector), p.m.Add(leading(binder.Start)), p.m.Add(leading(publisher.Start)))
}

// leading runs while this replica leads.
type leading func(context.Context) error

var _ manager.LeaderElectionRunnable = leading(nil)

// Start implements Runnable.
func (l leading) Start(ctx context.Context) error { return l(ctx) }

// NeedLeaderElection implements LeaderElectionRunnable.
func (leading) NeedLeaderElection() bool { return true }

// errNotYet says that an order cannot be judged before all is known that it is judged by.
var errNotYet = errors.New("the caches are not filled yet")

// judge judges orders by the books.
type judge struct{ feed *cluster.Feed }

// justMade is how long an order waits for its namespace and its class to be known: all
// are often of one file.
const justMade = time.Second

// Admit implements webhook.Orders.
func (j judge) Admit(ctx context.Context, o webhook.Order) error {
	if !j.feed.Synced() {
		return errNotYet
	}
	ctx, cancel := context.WithTimeout(ctx, justMade)
	defer cancel()
	for {
		next := j.feed.Next()
		err := j.admit(o)
		if err == nil {
			return nil
		}
		if code := diagnose.Refused(err, o.String()).Code; code != "GPU0603" && code != "GPU0620" {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-next:
		}
	}
}

func (j judge) admit(o webhook.Order) (err error) {
	j.feed.Books(func(b *books.Books) {
		err = b.Admit(books.Order{Object: o.String(), Namespace: o.Namespace, Class: o.Class, Count: o.Count})
	})
	return err
}
