package attach

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/test/wire"
)

// A start that is held up before one of its writes, and goes on when others have acted,
// takes nothing from anybody, and what it takes yet is given back.
func TestStartWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		verb, what string
		meanwhile  func(w *world, c *process)
		code       string
		want       map[string]string // when it has ended, and all is collected
	}{
		"V1 another VMI has a member": {
			"POST", "devices", func(w *world, c *process) { c.runs(w.vmi("other", `{"devices":["b"]}`)) },
			"GPU0634",
			map[string]string{"a": "Held", "b": "Attached other"},
		},
		"V2 what it made is collected": {"PUT", "status", collected, "", freeSet},
		"V2 a member is deleted": {
			"PUT", "status", func(w *world, _ *process) {
				w.must(admin.Delete(w.Context(), w.device("a")))
				w.cluster.Eventually(placed, "it is gone", func(context.Context) error {
					if _, there := w.states()["a"]; there {
						return errors.New("it is there")
					}
					return nil
				})
			}, "GPU0632", map[string]string{"b": "Held"},
		},
		"V5 its set is given back, and another VMI's": {"refused", "status", func(w *world, c *process) {
			collected(w, c)
			c.runs(w.vmi("other", `{"devices":["a"]}`))
		}, "GPU0716", map[string]string{"a": "Attached other", "b": "Held"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p, c := w.replica(), w.replica()
			g := p.holds(tc.verb, tc.what)
			if tc.verb == "refused" {
				p.Launcher = unreadable
				g = wire.NewGate()
				p.Set(func(x *wire.Exchange) error {
					if x.Verb == "PUT" && x.What == tc.what && x.N > 3 {
						return g.Pass(x)
					}
					return x.Send()
				})
			}
			ended := wire.Background(func() (*Started, error) { return p.Start(t.Context(), w.vmi("vm", setOf3), false) })
			<-g.Held
			tc.meanwhile(w, c)
			close(g.Open)
			if _, err := ended(); tc.code != "" {
				w.refused(err, tc.code, "")
			}
			collected(w, c)
			c.collects()
			w.become(tc.want)
		})
	}
}

// collected gives back what starts have taken.
func collected(w *world, c *process) {
	w.Helper()
	c.collects()
	w.passes(51 * time.Second)
	c.collects()
	c.collects()
}

// A start that is held up in the midst of its set, until it is given up by the API server
// and by the collector, may attach the rest, and that is given back, too.
func TestStartWakesInTheMidst(t *testing.T) {
	w := of3(t)
	p, c := w.replica(), w.replica()
	g := wire.NewGate()
	p.Set(func(x *wire.Exchange) error {
		if x.Verb == "PUT" && x.What == "status" && x.N == 2 {
			return g.Pass(x)
		}
		return x.Send()
	})
	ctx, stop := context.WithCancel(t.Context())
	ended := wire.Background(func() (*Started, error) { return p.Start(ctx, w.vmi("vm", setOf3), false) })
	<-g.Held
	collected(w, c)
	w.become(freeSet)
	stop()
	close(g.Open)
	if _, err := ended(); err == nil {
		t.Fatal("it is allowed")
	}
	w.given(c)
}

// A launcher's webhook that is held up claims for a VMI that is gone meanwhile: that is
// released.
func TestClaimWakes(t *testing.T) {
	w := of3(t)
	p, c := w.replica(), w.replica()
	uid := w.stores(p.starts(w.vmi("vm", setOf3)))
	g := p.holds("PUT", "status")
	ended := wire.Background(func() (string, error) { return p.Claim(t.Context(), w.ns, "vm", uid, false) })
	<-g.Held
	w.ends("vm")
	close(g.Open)
	_, err := ended()
	w.must(err)
	w.are(attachedSet)
	c.collects()
	c.collects()
	w.become(freeSet)
}

// A collector that is held up gives back nothing that somebody has taken meanwhile.
func TestCollectorWakes(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(w *world, p *process) // what is to be collected
	}{
		"C1 its VMI has ended": {func(w *world, p *process) {
			p.runs(of(w.vmi("vm", `{"devices":["a"]}`), "vm-uid"))
			w.ends("vm")
		}},
		"C1 its start came to nothing": {func(w *world, p *process) {
			p.starts(of(w.vmi("vm", `{"devices":["a"]}`), "vm-uid"))
			p.collects()
			w.passes(51 * time.Second)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := of3(t)
			p, late, c := w.replica(), w.replica(), w.replica()
			tc.before(w, p)
			late.collector.since, c.collector.since = p.collector.since, map[string]time.Time{}
			g := late.holds("PUT", "status")
			ended := wire.Background(func() (struct{}, error) { late.collects(); return struct{}{}, nil })
			<-g.Held
			p.collects()
			w.become(freeSet)
			p.runs(of(w.vmi("vm", `{"devices":["a"]}`), "vm-uid"))
			same := w.unchanged()
			close(g.Open)
			_, _ = ended()
			same()
		})
	}
}
