package bind

import (
	"testing"

	"github.com/gpuctl/gpuctl/test/wire"
)

// An order whose finalizer could not be written once is tried again soon.
func TestBinderWritesTheFinalizerAgain(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 8)
	w.class("h200")
	r := w.replica("a")
	w.order("before", 1)
	w.soon(map[string]string{"before": "Held n1"})
	r.Set(func(x *wire.Exchange) error {
		if x.Verb == "PUT" && x.What == "device" && x.N == 1 {
			return x.Say(500)
		}
		return x.Send()
	})
	w.order("a", 1)
	w.soon(map[string]string{"a": "Held n1"})
}
