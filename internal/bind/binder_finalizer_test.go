package bind

import (
	"testing"
)

// An order whose finalizer could not be written once is tried again soon.
func TestBinderWritesTheFinalizerAgain(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	r := w.replica("a")
	w.order("before", 1)
	w.soon(map[string]string{"before": "Held n1"})
	r.set(func(x *exchange) error {
		if x.verb == "PUT" && x.what == "device" && x.n == 1 {
			return x.say(500)
		}
		return x.send()
	})
	w.order("a", 1)
	w.soon(map[string]string{"a": "Held n1"})
}
