package attach

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/wire"
)

const template = `{"templates":[{"class":"h200","count":2}]}`

// A device that was made for a VM stays for ten minutes while the VM has no VMI and is
// about to start again.
func TestTemplateDevices(t *testing.T) {
	set := func(value any, path ...string) func(w *world, vm *unstructured.Unstructured) {
		return func(w *world, vm *unstructured.Unstructured) {
			w.must(unstructured.SetNestedField(vm.Object, value, path...))
			w.must(admin.Update(w.Context(), vm))
		}
	}
	asked := func(w *world, vm *unstructured.Unstructured) {
		w.must(unstructured.SetNestedSlice(vm.Object, []any{map[string]any{"action": "Start"}}, "status", "stateChangeRequests"))
		w.must(admin.Status().Update(w.Context(), vm))
	}
	references := []string{"spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices}
	anew := func(w *world, vm *unstructured.Unstructured) {
		w.must(admin.Delete(w.Context(), vm))
		w.vm("vm", "Always", template)
	}
	kept := map[string]string{"made": "Held"}
	gone := map[string]string{}
	for name, tc := range map[string]struct {
		strategy string
		then     func(w *world, vm *unstructured.Unstructured)
		passes   time.Duration
		want     map[string]string
	}{
		"it runs always":                  {want: kept},
		"for less than ten minutes":       {passes: 9*time.Minute + 50*time.Second, want: kept},
		"for ten minutes":                 {passes: 10*time.Minute + time.Second, want: gone},
		"it is started again when failed": {strategy: "RerunOnFailure", want: kept},
		"it is halted":                    {then: set("Halted", "spec", "runStrategy"), want: gone},
		"it is started by hand":           {strategy: "Manual", want: gone},
		"it runs once":                    {strategy: "Once", want: gone},
		"it was started by hand":          {strategy: "Manual", then: asked, want: kept},
		"it is deleted":                   {then: func(w *world, vm *unstructured.Unstructured) { w.must(admin.Delete(w.Context(), vm)) }, want: gone},
		"it is made anew":                 {then: anew, want: gone},
		"it wants another class":          {then: set(`{"templates":[{"class":"other","count":2}]}`, references...), want: gone},
		"it wants fewer":                  {then: set(`{"templates":[{"class":"h200"}]}`, references...), want: gone},
		"it wants one more":               {then: set(`{"templates":[{"class":"h200"},{"class":"h200","count":2}]}`, references...), want: kept},
		"it wants none":                   {then: set(`{"devices":["a"]}`, references...), want: gone},
		"nobody can read what it wants":   {then: set(`{`, references...), want: gone},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.leads()
			if tc.strategy == "" {
				tc.strategy = "Always"
			}
			vm := w.vm("vm", tc.strategy, template)
			p := w.replica()
			p.runs(of(w.vmi("vm", template), vm.GetUID()))
			w.passes(time.Hour) // how long it has run does not count
			if tc.then != nil {
				tc.then(w, vm)
			}
			p.collects()
			w.are(map[string]string{"made": "Attached vm"})
			w.ends("vm")
			p.collects() // it is released
			w.are(kept)
			w.passes(tc.passes)
			p.collects()
			w.become(tc.want)
		})
	}
}

// A VM that crashes again and again starts with the same device each time.
func TestTemplateDevicesStay(t *testing.T) {
	w := newWorld(t)
	w.leads()
	vm := w.vm("vm", "Always", template)
	p := w.replica()
	p.runs(of(w.vmi("vm", template), vm.GetUID()))
	first := w.devices()[0].Name
	for range 3 {
		w.passes(9 * time.Minute)
		w.ends("vm")
		p.collects()
		w.passes(9 * time.Minute)
		p.collects()
		p.runs(of(w.vmi("vm", template), vm.GetUID()))
		if all := w.devices(); len(all) != 1 || all[0].Name != first {
			t.Fatalf("devices %v, want %s", w.versions(), first)
		}
	}
}

// Who leads collects first; the others do when nobody has.
func TestCollectorWaits(t *testing.T) {
	for name, tc := range map[string]struct {
		leads       bool
		before, and time.Duration
	}{"it leads": {true, 44 * time.Second, 2 * time.Second}, "it does not": {false, 49 * time.Second, 2 * time.Second}} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p, c := w.replica(), w.replica()
			if !tc.leads {
				c.collector.leads = make(chan struct{})
			}
			p.starts(w.vmi("vm", `{"devices":["a"]}`))
			p.Set(func(x *wire.Exchange) error { // one that is made, and never attached
				if x.Verb == "PUT" {
					return wire.ErrLost
				}
				return x.Send()
			})
			_, _ = p.Start(p.stopsAt(1, false), w.vmi("vm-2", template), false)
			bound := map[string]string{"a": "Bound vm starting", "b": "Held", "made": ""}
			w.become(bound)
			w.passes(time.Hour) // nobody has seen it yet
			c.collects()
			w.passes(tc.before)
			c.collects()
			w.are(bound)
			w.passes(tc.and)
			c.collects()
			w.become(freeSet)
		})
	}
}

// A write whose answer is lost is found out about: the start goes on, or leaves nothing.
func TestLostAnswers(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, what string
		n          int
		starts     bool
	}{
		"made":              {"POST", "devices", 1, false},
		"attached, first":   {"PUT", "status", 1, true},
		"attached, second":  {"PUT", "status", 2, true},
		"attached, third":   {"PUT", "status", 3, true},
		"asked who is free": {"GET", "device", 1, false},
	} {
		for how, fault := range map[string]func(*wire.Exchange) error{
			"handled":     func(x *wire.Exchange) error { return x.Drop() },
			"not handled": func(*wire.Exchange) error { return wire.ErrLost },
			"says 504":    func(x *wire.Exchange) error { return x.Instead(504) },
		} {
			t.Run(name+", "+how, func(t *testing.T) {
				w := of3(t)
				p := w.replica()
				p.Set(func(x *wire.Exchange) error {
					if x.Verb == tc.verb && x.What == tc.what && x.N == tc.n {
						return fault(x)
					}
					return x.Send()
				})
				_, err := p.Start(t.Context(), w.vmi("vm", setOf3), false)
				if tc.starts {
					w.must(err)
					w.are(boundSet)
					return
				}
				if err == nil {
					t.Fatal("it goes on")
				}
				p.Set(nil)
				collected(w, p)
				w.become(freeSet)
			})
		}
	}
}
