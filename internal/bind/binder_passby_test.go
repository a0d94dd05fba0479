package bind

import (
	"testing"
	"time"
)

// An order whose finalizer nobody lets the binder write backs off, and does not keep the
// units from who comes after it.
func TestBinderPassesByWhoseFinalizerIsRefused(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	r := w.replica("a")
	w.order("first", 8)
	w.soon(map[string]string{"first": "Pending NotAllowed"}) // it leads; there is no such class
	r.set(func(x *exchange) error {
		if x.verb == "PUT" && x.what == "device" && x.name == "first" {
			return x.say(403)
		}
		return x.send()
	})
	time.Sleep(1100 * time.Millisecond) // creation is told in seconds
	w.order("second", 8)
	w.soon(map[string]string{"second": "Pending NotAllowed"})
	w.class("h200")
	w.soon(map[string]string{"second": "Held n1"})
}
