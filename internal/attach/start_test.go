package attach

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubevirt "kubevirt.io/api/core/v1"
)

const setOf3 = `{"devices":["a","b"],"templates":[{"class":"h200","count":2}]}`

// of3 is a world with what a set of three needs, and somebody who answers.
func of3(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.leads()
	w.order("a", 1)
	w.order("b", 2)
	w.become(map[string]string{"a": "Held", "b": "Held"})
	return w
}

var (
	freeSet     = map[string]string{"a": "Held", "b": "Held"}
	boundSet    = map[string]string{"a": "Bound vm starting", "b": "Bound vm starting", "made": "Bound vm starting"}
	attachedSet = map[string]string{"a": "Attached vm", "b": "Attached vm", "made": "Attached vm"}
)

// What a start reads of etcd where its own replica has seen all: each read costs. After a
// while it reads the devices again before they are stored, and refuses what was collected.
func TestReads(t *testing.T) {
	w := of3(t)
	p, v := w.replica(), w.vmi("vm", `{"devices":["a"]}`)
	reads := func(what string, want ...string) {
		t.Helper()
		got := slices.Sorted(slices.Values(slices.DeleteFunc(p.Took(), func(line string) bool { return !strings.HasPrefix(line, "GET") })))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	w.passes(time.Second)
	p.Took()
	stored := p.starts(v)
	reads("a start", "GET device 200", "GET leases 200", "GET virtualmachineinstances 404")
	w.must(p.Validate(t.Context(), stored, false))
	reads("what is to be stored")
	w.passes(keepsFor)
	w.must(p.Validate(t.Context(), stored, false))
	reads("what is to be stored late", "GET device 200")
	uid := w.stores(stored)
	if _, err := p.Claim(t.Context(), w.ns, "vm", uid, false); err != nil {
		t.Fatal(err)
	}
	reads("a claim", "GET virtualmachineinstances 200")

	now := w.now()
	p.leader.now = func() time.Time { return now }
	_, err := p.Start(t.Context(), w.vmi("vm-2", `{"devices":["b"]}`), false)
	w.must(err)
	reads("a second start, and the Lease is read again", "GET device 200", "GET leases 200", "GET virtualmachineinstances 404")
	_, err = p.Start(t.Context(), w.vmi("vm-3", `{"devices":["b"]}`), false)
	w.refused(err, "GPU0635", "")
	reads("one at the same time", "GET device 200", "GET virtualmachineinstances 404")
}

// A start takes the whole set, the VMI that is stored claims it, and its end gives it back.
func TestStart(t *testing.T) {
	w := of3(t)
	p, v := w.replica(), w.vmi("vm", setOf3)
	p.Took()
	stored := p.starts(v)
	if diff := cmp.Diff([]string{"POST devices 201", "PUT status 200", "PUT status 200", "PUT status 200"}, p.writes()); diff != "" {
		t.Errorf("writes of a start (-want +got):\n%s", diff)
	}
	w.are(boundSet)
	var got []string
	for _, g := range stored.Spec.Domain.Devices.GPUs {
		got = append(got, g.Name[:2]+" "+g.DeviceName)
	}
	if diff := cmp.Diff([]string{"a- " + h200, "b- " + h200, "b- " + h200, "vm " + h200, "vm " + h200}, got); diff != "" {
		t.Errorf("gpus (-want +got):\n%s", diff)
	}
	w.must(p.Validate(t.Context(), stored, false))
	uid := w.stores(stored)
	for range 2 {
		node, err := p.Claim(t.Context(), w.ns, "vm", uid, false)
		if node != "n1" || err != nil {
			t.Fatalf("claimed: %q, %v", node, err)
		}
		w.are(attachedSet)
	}
	if diff := cmp.Diff([]string{"PUT status 200", "PUT status 200", "PUT status 200"}, p.writes()); diff != "" {
		t.Errorf("writes of two claims (-want +got):\n%s", diff)
	}
	p.collects()
	w.are(attachedSet)
	w.ends("vm")
	p.collects()
	p.collects()
	w.become(freeSet)
}

// A dry run is judged as a start is, and writes nothing.
func TestStartDry(t *testing.T) {
	w := of3(t)
	p := w.replica()
	same := w.unchanged()
	p.Took()
	got, err := p.Start(t.Context(), w.vmi("vm", setOf3), true)
	if err != nil || got.RequestID != "" || len(got.GPUs) != 5 {
		t.Errorf("a dry run gives %+v, %v", got, err)
	}
	w.must(p.Validate(t.Context(), admitted(w.vmi("vm", setOf3), got), true))
	again, err := p.Start(t.Context(), admitted(w.vmi("vm", setOf3), got), true) // as when others change the object
	if diff := cmp.Diff(got, again); err != nil || diff != "" {
		t.Errorf("called again: %v (-first +again):\n%s", err, diff)
	}
	_, err = p.Start(t.Context(), w.vmi("vm", `{"devices":["nobody"]}`), true)
	w.refused(err, "GPU0632", "nobody")
	same()
	stored := p.starts(w.vmi("vm", `{"devices":["a"]}`))
	uid := w.stores(stored)
	same = w.unchanged()
	p.Took()
	if node, err := p.Claim(t.Context(), w.ns, "vm", uid, true); node != "n1" || err != nil {
		t.Errorf("a dry claim gives %q, %v", node, err)
	}
	same()
	if log := p.writes(); len(log) > 0 {
		t.Errorf("it writes: %v", log)
	}
}

// A start whose id its set carries already is the same start, called once more. Whoever
// else has the id is another one. Neither writes anything.
func TestStartAgain(t *testing.T) {
	id := func(text string) func(*kubevirt.VirtualMachineInstance) {
		return func(v *kubevirt.VirtualMachineInstance) { v.Annotations["gpuctl.dev/request-id"] = text }
	}
	w := of3(t)
	first, second := w.replica(), w.replica() // any replica may be called
	stored := first.starts(of(w.vmi("vm", setOf3), "vm-uid"))
	second.knows()
	for name, tc := range map[string]struct {
		change     func(v *kubevirt.VirtualMachineInstance)
		code, text string
	}{
		"as it was":          {change: func(*kubevirt.VirtualMachineInstance) {}},
		"labels are written": {change: func(v *kubevirt.VirtualMachineInstance) { v.Labels["x"] = "y" }},
		"another name": {
			change: func(v *kubevirt.VirtualMachineInstance) { v.Name = "thief" }, code: "GPU0635", text: "vm, which is starting",
		},
		"another VM":    {change: func(v *kubevirt.VirtualMachineInstance) { of(v, "thief") }, code: "GPU0635", text: "vm, which is starting"},
		"no VM":         {change: func(v *kubevirt.VirtualMachineInstance) { v.OwnerReferences = nil }, code: "GPU0635", text: "vm, which is starting"},
		"another id":    {change: id("0123456789abcdef0123456789abcdef"), code: "GPU0635", text: "vm, which is starting"},
		"no id":         {change: id(""), code: "GPU0635", text: "vm, which is starting"},
		"in upper case": {change: func(v *kubevirt.VirtualMachineInstance) { id("A" + v.Annotations["gpuctl.dev/request-id"][1:])(v) }, code: "GPU0635", text: "vm, which is starting"},
		"a raw name beside it": {change: func(v *kubevirt.VirtualMachineInstance) {
			v.Spec.Domain.Devices.GPUs = append(v.Spec.Domain.Devices.GPUs, kubevirt.GPU{Name: "more-0", DeviceName: h200})
		}, code: "GPU0638", text: "more-0 asks for"},
		"a raw host device beside it": {change: func(v *kubevirt.VirtualMachineInstance) {
			v.Spec.Domain.Devices.HostDevices = []kubevirt.HostDevice{{Name: "more", DeviceName: h200}}
		}, code: "GPU0638", text: "more asks for"},
	} {
		t.Run(name, func(t *testing.T) {
			same := w.unchanged()
			second.Took()
			v := stored.DeepCopy()
			tc.change(v)
			got, err := second.Start(t.Context(), v, false)
			if tc.code != "" {
				w.refused(err, tc.code, tc.text)
			} else if err != nil {
				t.Errorf("refused: %v", err)
			} else if diff := cmp.Diff(stored, admitted(stored, got)); diff != "" {
				t.Errorf("it is not the same (-first +again):\n%s", diff)
			}
			if log := second.writes(); len(log) > 0 {
				t.Errorf("it writes: %v", log)
			}
			same()
			w.must(first.Validate(t.Context(), stored, false))
		})
	}
}

// What is stored has the gpus of the set, each once.
func TestValidate(t *testing.T) {
	w := of3(t)
	p := w.replica()
	stored := p.starts(of(w.vmi("vm", setOf3), "u"))
	for name, tc := range map[string]struct {
		change     func(gpus []kubevirt.GPU) []kubevirt.GPU
		code, text string
	}{
		"another order":       {change: func(g []kubevirt.GPU) []kubevirt.GPU { return append(g[1:len(g):len(g)], g[0]) }},
		"one twice":           {func(g []kubevirt.GPU) []kubevirt.GPU { return append(g, g[0]) }, "GPU0644", "6 gpus, 5 of them different"},
		"one less":            {func(g []kubevirt.GPU) []kubevirt.GPU { return g[1:] }, "GPU0644", "4 gpus, 4 of them different"},
		"one for another":     {func(g []kubevirt.GPU) []kubevirt.GPU { return append(g[1:len(g):len(g)], g[1]) }, "GPU0644", "5 gpus, 4 of them different"},
		"one of another kind": {func(g []kubevirt.GPU) []kubevirt.GPU { g[0].DeviceName = "x/y"; return g }, "GPU0638", "asks for x/y"},
	} {
		t.Run(name, func(t *testing.T) {
			v := stored.DeepCopy()
			v.Spec.Domain.Devices.GPUs = tc.change(v.Spec.Domain.Devices.GPUs)
			err := p.Validate(t.Context(), v, false)
			if tc.code != "" {
				w.refused(err, tc.code, tc.text)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}

// A VMI has the VM that controls it, if a VM can be called so.
func TestVMOf(t *testing.T) {
	for name, want := range map[string]bool{"trainer": true, "a.b": true, "": false, "a/b": false, "../x": false} {
		v := of(&kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: name}}, "u")
		if got := vmOf(v.OwnerReferences); (got != nil) != want {
			t.Errorf("%q: %v", name, got)
		}
	}
}

// gpus that somebody has taken away meanwhile are there again.
func TestStartAgainCompletes(t *testing.T) {
	for name, references := range map[string]string{"orders": `{"devices":["a","b"]}`, "a template, too": setOf3} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p := w.replica()
			stored := p.starts(w.vmi("vm", references))
			bare := stored.DeepCopy()
			bare.Spec.Domain.Devices.GPUs = nil
			same := w.unchanged()
			got, err := p.Start(t.Context(), bare, false)
			w.must(err)
			if diff := cmp.Diff(stored, admitted(bare, got)); diff != "" {
				t.Errorf("it is not the same (-first +again):\n%s", diff)
			}
			same()
		})
	}
}

// A start that the binder refuses, that nobody answers, or that the API server has given
// up leaves nothing.
func TestStartRollsBack(t *testing.T) {
	t.Run("refused", func(t *testing.T) {
		w := of3(t)
		p := w.replica()
		p.Launcher = unreadable
		_, err := p.Start(t.Context(), w.vmi("vm", setOf3), false)
		w.refused(err, "GPU0716", "")
		w.become(freeSet)
		if d := w.device("a"); d.Status.BindRequest != nil {
			t.Errorf("it asks still: %+v", d.Status.BindRequest)
		}
	})
	for name, tc := range map[string]struct {
		timeout time.Duration
		code    string
	}{"nobody answers": {time.Minute, "GPU0712"}, "the API server gives up": {time.Second, "GPU0712"}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.order("a", 1)
			w.order("b", 1)
			p := w.replica()
			ctx, cancel := context.WithTimeout(t.Context(), tc.timeout)
			defer cancel()
			_, err := p.Start(ctx, w.vmi("vm", setOf3), false)
			w.refused(err, tc.code, "")
			w.leads() // it has to take the finalizer off what was made
			w.become(freeSet)
		})
	}
}

// A quota that counts objects is told as what it is.
func TestStartInAFullNamespace(t *testing.T) {
	w := of3(t)
	devices := corev1.ResourceList{"count/gpudevices.gpuctl.dev": resource.MustParse("3")}
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "objects"}, Spec: corev1.ResourceQuotaSpec{Hard: devices}}
	w.must(admin.Create(t.Context(), quota))
	quota.Status = corev1.ResourceQuotaStatus{Hard: devices, Used: corev1.ResourceList{"count/gpudevices.gpuctl.dev": resource.MustParse("2")}}
	w.must(admin.Status().Update(t.Context(), quota))
	_, err := w.replica().Start(t.Context(), w.vmi("vm", `{"devices":["a"],"templates":[{"class":"h200"},{"class":"h200"}]}`), false)
	w.refused(err, "GPU0648", "objects, requested: count/gpudevices.gpuctl.dev=1, used: count/gpudevices.gpuctl.dev=3, limited: count/gpudevices.gpuctl.dev=3")
	w.become(freeSet)
}

// unreadable is a launcher that the binder refuses.
func unreadable(context.Context, *kubevirt.VirtualMachineInstance) (string, error) {
	return `{"containers":`, nil
}
