package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

// startsOptions are what the flags say.
type startsOptions struct {
	webhookOptions         // orders are the VMIs
	added          float64 // ms
}

// starts are the VMIs of one round.
type starts struct {
	*startsOptions
	sides [2]*side
	round int
}

// run compares how long creating a VMI takes with devices and without, in a cluster with no
// devices and in one with many. Nothing else happens there: the binder is idle.
func (o *startsOptions) run(ctx context.Context, out io.Writer) error {
	free := (1+o.rounds)*o.orders*2/gpusOfNode + 3
	return o.onBoth(ctx, free, func(ctx context.Context, sides [2]*side) error {
		fmt.Fprintf(out, "%s; %d nodes of %d GPUs; %d rounds of %d VMIs of each kind, one at a time, stored by an API server without KubeVirt's webhooks\n",
			machine(), o.nodes, gpusOfNode, o.rounds, o.orders)
		s := &starts{startsOptions: o, sides: sides}
		bare := &probe{name: "create without devices", order: s.create(func(*unstructured.Unstructured, int) {})}
		with := []*probe{
			{name: "create with an order that is held", order: s.create(s.named), judged: true},
			{name: "create with a template", order: s.create(templated), judged: true},
		}
		all := append([]*probe{bare}, with...)
		if err := o.compare(ctx, sides, all, s.prepare); err != nil {
			return err
		}
		fmt.Fprintf(out, "load in the end %s\n", load())
		return errors.Join(o.printAdded(out, bare, with), o.printRatios(out, all))
	})
}

// printAdded says how much longer it takes with devices.
func (o *startsOptions) printAdded(out io.Writer, bare *probe, with []*probe) error {
	var errs []error
	for _, p := range with {
		for side, beside := range []int{0, o.devices} {
			under, over := slices.Concat(bare.times[side][1:]...), slices.Concat(p.times[side][1:]...)
			slices.Sort(under)
			slices.Sort(over)
			var rounds []float64
			for round := range o.rounds {
				rounds = append(rounds, middle(slices.Clone(p.times[side][1+round]))-middle(slices.Clone(bare.times[side][1+round])))
			}
			more := quantile(over, 0.5) - quantile(under, 0.5)
			fmt.Fprintf(out, "%-34s beside %5d devices: p50 %.2f ms more [rounds %.2f..%.2f], p99 %.2f ms more\n",
				p.name, beside, more, slices.Min(rounds), slices.Max(rounds), quantile(over, 0.99)-quantile(under, 0.99))
			if more > o.added {
				errs = append(errs, fmt.Errorf("%s takes %.2f ms more beside %d devices, want at most %.2f", p.name, more, beside, o.added))
			}
		}
	}
	return errors.Join(errs...)
}

func (s *starts) order(round, i int) string { return fmt.Sprintf("start-%d-%d", round, i) }

// create returns a probe that creates a VMI.
func (s *starts) create(refer func(*unstructured.Unstructured, int)) func(context.Context, *side, int) error {
	return func(ctx context.Context, on *side, i int) error {
		u := instance(tenantName(i), "")
		u.SetGenerateName("start-")
		refer(u, i)
		return on.client.Create(ctx, u)
	}
}

func instance(namespace, name string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{
		"domain": map[string]any{"devices": map[string]any{}}, "tolerations": []any{map[string]any{"operator": "Exists"}}, // no kubelet says that a node is ready
	}}}
	u.SetAPIVersion("kubevirt.io/v1")
	u.SetKind("VirtualMachineInstance")
	u.SetNamespace(namespace)
	u.SetName(name)
	return u
}

func refer(u *unstructured.Unstructured, references string) {
	u.SetLabels(map[string]string{v1alpha1.LabelDeviceReference: v1alpha1.ValueTrue})
	u.SetAnnotations(map[string]string{v1alpha1.AnnotationDevices: references})
}

func (s *starts) named(u *unstructured.Unstructured, i int) {
	refer(u, fmt.Sprintf(`{"devices":[%q]}`, s.order(s.round, i)))
}

func templated(u *unstructured.Unstructured, i int) {
	refer(u, fmt.Sprintf(`{"templates":[{"class":%q}]}`, className(i)))
}

// prepare deletes what an earlier round has left, and makes the orders of the next one.
func (s *starts) prepare(ctx context.Context, round int) error {
	s.round = round
	for _, on := range s.sides {
		if err := s.clear(ctx, on); err != nil {
			return err
		}
		if err := fleet.InParallel(ctx, s.orders, func(ctx context.Context, i int) error { return s.held(ctx, on, round, i) }); err != nil {
			return err
		}
	}
	time.Sleep(2 * time.Second) // nothing is on its way
	return nil
}

// clear deletes the VMIs, and the orders of the last round. Those go when they are given
// back.
func (s *starts) clear(ctx context.Context, on *side) error {
	for i := range min(tenants, s.orders) {
		if err := on.client.DeleteAllOf(ctx, instance("", ""), client.InNamespace(tenantName(i))); err != nil {
			return err
		}
	}
	return fleet.InParallel(ctx, s.orders, func(ctx context.Context, i int) error {
		d := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: s.order(s.round-1, i)}}
		return client.IgnoreNotFound(on.client.Delete(ctx, d))
	})
}

// held makes an order, and waits until it has its unit.
func (s *starts) held(ctx context.Context, on *side, round, i int) error {
	d := orderIn(tenantName(i), i)
	d.Name = s.order(round, i)
	if err := on.client.Create(ctx, d); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		err := on.client.Get(ctx, client.ObjectKeyFromObject(d), d)
		return d.Status.HoldsUnits(), err
	})
	if err != nil {
		return fmt.Errorf("order %s/%s is not held: %w", d.Namespace, d.Name, err)
	}
	return nil
}
