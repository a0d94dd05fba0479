package bind

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

const (
	// keptFor is how long what a nudged VM needs is kept from others. It is in the
	// leader's memory: after a fail-over newcomers may be faster, and nothing else.
	keptFor = 5 * time.Second
	// nudgeFirst and nudgeLast bound how long a VM is left alone that was nudged in vain:
	// something keeps it away that is not in the books.
	nudgeFirst = keptFor
	nudgeLast  = 5 * time.Minute
	// settledAfter is how long KubeVirt is left to try again by itself.
	settledAfter = time.Second
)

// nudged is what is known of a VM that waits.
type nudged struct {
	seen  time.Time // that it waits
	tries int       // in vain
	after time.Time // it is not nudged before
	room  books.Room
	kept  time.Time // until when
}

// nudger tells VMs that wait that what they need has come back, in the order in which
// they began to wait: KubeVirt would leave them alone for up to 16 minutes.
type nudger map[types.UID]*nudged

// keep keeps from others what VMs were nudged for a moment ago.
func (n nudger) keep(round *books.Round, now time.Time) {
	for uid, one := range n {
		if now.Before(one.kept) {
			round.Keep(string(uid), one.room)
		}
	}
}

// let lets a set of a VM have what is kept for it. What it returns is told whether the
// set has got it: then no more is kept, else it is kept again.
func (n nudger) let(round *books.Round, vm types.UID, now time.Time) (got func(bool)) {
	one := n[vm]
	if one == nil || !now.Before(one.kept) {
		return func(bool) {}
	}
	round.Let(string(vm), one.room)
	return func(has bool) {
		if has {
			one.kept = now
			return
		}
		round.Keep(string(vm), one.room)
	}
}

// look says which VMs are to be nudged now.
func (n nudger) look(round *books.Round, v cluster.View, now time.Time) (out []cluster.WaitingVM) {
	waiting := v.WaitingVMs()
	slices.SortFunc(waiting, func(a, b cluster.WaitingVM) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.UID, b.UID))
	})
	still := map[types.UID]bool{}
	for _, vm := range waiting {
		still[vm.UID] = true
		one := n[vm.UID]
		if one == nil {
			one = &nudged{seen: now}
			n[vm.UID] = one
		}
		if now.Before(one.after) || now.Before(one.kept) || now.Sub(one.seen) < settledAfter {
			continue
		}
		set, free := setOf(&vm, v)
		if !free {
			continue
		}
		round.Effort = -1 // what others would have to make room for is no capacity that returned
		room, err := round.Try(set)
		if err != nil {
			continue
		}
		round.Keep(string(vm.UID), room)
		one.room, one.kept = room, now.Add(keptFor)
		one.after = now.Add(min(nudgeFirst<<min(one.tries, 10), nudgeLast))
		one.tries++
		out = append(out, vm)
	}
	for uid, one := range n {
		if !still[uid] && !now.Before(one.kept) {
			delete(n, uid)
		}
	}
	return out
}

// next returns when to look again at the VMs that wait; at most in limit.
func (n nudger) next(now time.Time, limit time.Duration) time.Duration {
	for _, one := range n {
		for _, at := range []time.Time{one.after, one.kept, one.seen.Add(settledAfter)} {
			if wait := at.Sub(now); wait > 0 {
				limit = min(limit, wait)
			}
		}
	}
	return limit
}

// setOf is what a VM asks for; free is false where somebody else has a device of it.
func setOf(vm *cluster.WaitingVM, v cluster.View) (set books.Set, free bool) {
	set = books.Set{Object: "VirtualMachine " + vm.Namespace + "/" + vm.Name, Namespace: vm.Namespace}
	for _, name := range vm.References.Devices {
		d := v.Named(vm.Namespace, name)
		if d == nil || !available(d, vm.UID, v) {
			return set, false
		}
		set.Devices = append(set.Devices, string(d.UID))
	}
	made := v.MadeFor(vm.UID)
	for _, t := range vm.References.Templates {
		at := slices.IndexFunc(made, func(d *v1alpha1.GPUDevice) bool {
			return d != nil && t.Makes(d.Spec) && available(d, vm.UID, v)
		})
		if at >= 0 {
			set.Devices = append(set.Devices, string(made[at].UID))
			made[at] = nil
			continue
		}
		set.New = append(set.New, books.Order{Object: set.Object, Namespace: vm.Namespace, Class: t.Class, Count: t.Count})
	}
	return set, true
}

// available reports a device that a VM's next VMI would get.
func available(d *v1alpha1.GPUDevice, vm types.UID, v cluster.View) bool {
	a, p := d.Status.Attachment, d.Status.Placement
	switch {
	case !d.DeletionTimestamp.IsZero() || p != nil && p.LostSince != nil:
		return false
	case a == nil:
		return true
	}
	return a.VMIUID != "" && a.VMUID == vm && !v.Runs(a.VMIUID)
}

// nudge changes the VM, which has KubeVirt look at it at once.
func (b *Binder) nudge(ctx context.Context, vm cluster.WaitingVM, now time.Time) error {
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(kubevirt.VirtualMachineGroupVersionKind)
	u.SetNamespace(vm.Namespace)
	u.SetName(vm.Name)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": vm.UID, "annotations": map[string]string{v1alpha1.AnnotationNudged: metav1.NewTime(now).UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return err
	}
	b.Log.Info("what a VM waits for is back", "vm", vm.Namespace+"/"+vm.Name)
	return client.IgnoreNotFound(b.Client.Patch(ctx, u, client.RawPatch(types.MergePatchType, patch)))
}
