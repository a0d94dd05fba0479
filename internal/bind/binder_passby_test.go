package bind

import (
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/test/wire"
)

// An order whose finalizer nobody lets the binder write backs off, and does not keep the
// units from who comes after it.
func TestBinderPassesByWhoseFinalizerIsRefused(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	r := w.replica("a")
	w.order("first", 8)
	w.soon(map[string]string{"first": "Pending NotAllowed"}) // it leads; there is no such class
	r.Set(func(x *wire.Exchange) error {
		if x.Verb == "PUT" && x.What == "device" && x.Name == "first" {
			return x.Say(403)
		}
		return x.Send()
	})
	time.Sleep(1100 * time.Millisecond) // creation is told in seconds
	w.order("second", 8)
	w.soon(map[string]string{"second": "Pending NotAllowed"})
	w.class("h200")
	w.soon(map[string]string{"second": "Held n1"})
}
