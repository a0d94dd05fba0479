package bind

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/wire"
)

// Each device costs one write, and the batch one more.
func TestCommit(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	if _, l := w.stored(); l.Term != 1 || l.Holder != "a" || !l.Unfenced {
		t.Errorf("the first ledger: %+v", l)
	}
	p.Took()
	var entries []Entry
	for i := range 20 {
		entries = append(entries, place(w.device(fmt.Sprintf("d%02d", i)), "n1"))
	}
	out := w.commit(p, entries...)
	log := p.Took()
	if diff := cmp.Diff(append([]string{"PUT ledger 200"}, repeated("PUT status 200", 20)...), log); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	for i, o := range out {
		d := w.get(fmt.Sprintf("d%02d", i))
		if o.Result != Written || cmp.Diff(d.Status, o.Device.Status) != "" || d.ResourceVersion != o.Device.ResourceVersion {
			t.Errorf("entry %d: %v; not as it is stored:\n%s", i, o.Result, cmp.Diff(d, o.Device))
		}
		if d.Status.State != v1alpha1.DeviceHeld || d.Status.Origin.Kind != v1alpha1.OriginOrder || nodeOf(d) != "n1" {
			t.Errorf("entry %d: %+v", i, d.Status)
		}
	}
	if _, l := w.stored(); l.Term != 1 || l.Sequence != 1 || l.Unfenced || len(l.Batch) != 20 {
		t.Errorf("the ledger after it: term %d, sequence %d, unfenced %v, %d entries", l.Term, l.Sequence, l.Unfenced, len(l.Batch))
	}
	w.commit(p, place(out[3].Device, "n2"))
	if got := nodeOf(w.get("d03")); got != "n2" {
		t.Errorf("moved to %q", got)
	}
	p.Took()
	if out := w.commit(p); len(out) != 0 || len(p.Took()) != 0 {
		t.Errorf("an empty batch was written")
	}
}

// A batch that breaks a rule is not begun.
func TestCommitInvalid(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	d := w.device("d")
	bare := d.DeepCopy()
	bare.Finalizers = nil
	unplaced := place(d, "n1")
	unplaced.Placement.Units = 0
	many := []Entry{}
	for i := range v1alpha1.MaxBatch + 1 {
		other := d.DeepCopy()
		other.Name, other.UID = fmt.Sprintf("d%d", i), d.UID+"-"+"x"
		many = append(many, place(other, "n1"))
	}
	p.Took()
	for name, tc := range map[string]struct {
		entries []Entry
		want    string
	}{
		"no device":      {[]Entry{{}}, "commit: the batch is not valid: entry 0: it has no device"},
		"no finalizer":   {[]Entry{place(d, "n1"), place(bare, "n1")}, "entry 1: GPUDevice " + w.ns + "/d: metadata.finalizers"},
		"no units":       {[]Entry{unplaced}, "batch[0].placement.units: 0"},
		"a device twice": {[]Entry{place(d, "n1"), place(d, "n2")}, "batch[1]: batch[0] is of device " + w.ns + "/d, too"},
		"129 entries":    {many, "batch has 129 entries; it can have 128"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := p.Commit(t.Context(), tc.entries)
			if !errors.Is(err, ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if log := p.Took(); len(log) > 0 {
				t.Errorf("it was begun: %v", log)
			}
		})
	}
	if out := w.commit(p, place(d, "n1")); out[0].Result != Written {
		t.Errorf("the leadership has ended: %v", out)
	}
}

// What happened to a device since the decision makes its entry void, and no other.
func TestVoid(t *testing.T) {
	for name, change := range map[string]func(*world){
		"edited":        func(w *world) { w.edit("b") },
		"gone":          func(w *world) { w.remove("b") },
		"made anew":     func(w *world) { w.remove("b"); w.device("b") },
		"being deleted": func(w *world) { w.must(admin.Delete(w.Context(), w.get("b"))) },
	} {
		for when, what := range map[string]string{"before the swap": "ledger", "before the write": "status"} {
			t.Run(name+" "+when, func(t *testing.T) {
				w := newWorld(t)
				p := w.leader("a")
				entries := []Entry{place(w.device("a"), "n1"), place(w.device("b"), "n1"), place(w.device("c"), "n1")}
				g := wire.NewGate()
				p.Set(func(x *wire.Exchange) error {
					if x.What == what && (what == "ledger" || x.Name == "b") {
						return g.Pass(x)
					}
					return x.Send()
				})
				finished := wire.Background(func() ([]Outcome, error) { return p.Commit(t.Context(), entries) })
				<-g.Held
				change(w)
				close(g.Open)
				out, err := finished()
				w.must(err)
				if diff := cmp.Diff([]Result{Written, Void, Written}, results(out)); diff != "" {
					t.Errorf("results (-want +got):\n%s", diff)
				}
				now := w.get("b")
				if nodeOf(now) != "" {
					t.Errorf("b was placed: %+v", now.Status)
				}
				if name == "edited" || name == "being deleted" {
					if diff := cmp.Diff(now, out[1].Device); diff != "" {
						t.Errorf("the outcome has another device (-now +outcome):\n%s", diff)
					}
				} else if out[1].Device != nil {
					t.Errorf("the outcome has a device: %+v", out[1].Device)
				}
				if log := p.Took(); slices.Contains(log, "PUT status 200") && len(log) < 4 {
					t.Errorf("requests: %v", log)
				}
			})
		}
	}
}

// A device that is known to be being deleted is not even tried. What it has is lost and
// heals as ever.
func TestDeletedDevice(t *testing.T) {
	w := newWorld(t)
	p := w.leader("a")
	d := w.commit(p, place(w.device("d"), "n1"))[0].Device
	e := w.device("e")
	w.must(admin.Delete(t.Context(), d))
	w.must(admin.Delete(t.Context(), e))
	d, e = w.get("d"), w.get("e")
	now := metav1.NewMicroTime(time.Now())
	lost := Entry{Device: d, Placement: d.Status.Placement.DeepCopy()}
	lost.Placement.LostSince = &now
	p.Took()
	out := w.commit(p, place(e, "n1"), lost)
	if diff := cmp.Diff([]Result{Void, Written}, results(out)); diff != "" {
		t.Errorf("results (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"PUT ledger 200", "PUT status 200"}, p.Took()); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	if d := w.get("d"); d.Status.State != v1alpha1.DeviceLost {
		t.Errorf("d is %s", d.Status.State)
	}
	if out := w.commit(p, place(e, "n1")); out[0].Result != Void || len(p.Took()) > 0 {
		t.Errorf("e: %v", out)
	}
}

// A refusal settles an entry of a batch. A replay has to be able to write it.
func TestRefused(t *testing.T) {
	w := newWorld(t)
	config := w.cluster.User("no-status-"+w.ns,
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "create", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"gpudevices"}, Verbs: []string{"get", "list", "update"}},
	)
	p := w.partyAs(config, "a")
	w.must(p.Lead(t.Context()))
	d := w.device("d")
	out := w.commit(p, place(d, "n1"))
	if out[0].Result != Refused || out[0].Err == nil || !strings.Contains(out[0].Err.Error(), "write GPUDevice "+w.ns+"/d: gpudevices.gpuctl.dev \"d\" is forbidden") {
		t.Errorf("outcome %+v", out[0])
	}
	again := w.partyAs(config, "a")
	err := again.Lead(t.Context())
	if want := "lead: replay the batch of ConfigMap " + w.ns + "/gpuctl-ledger: write GPUDevice " + w.ns + "/d: "; err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("leads: %v, want %q", err, want)
	}
	if _, err := again.Commit(t.Context(), nil); !errors.Is(err, ErrDeposed) {
		t.Errorf("commits without leading: %v", err)
	}
	w.leader("b")
	if got := nodeOf(w.get("d")); got != "n1" {
		t.Errorf("replayed to %q", got)
	}
}
