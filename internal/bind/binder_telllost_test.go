package bind

import (
	"testing"

	"github.com/gpuctl/gpuctl/test/wire"
)

// An order whose reason has changed is told so soon, also when the first write of it is
// lost.
func TestBinderTellsAgain(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 4)
	r := w.replica("a")
	w.order("a", 8)
	w.soon(map[string]string{"a": "Pending NotAllowed"}) // there is no such class
	r.Set(func(x *wire.Exchange) error {
		if x.Verb == "PUT" && x.What == "status" && x.N == 1 {
			return x.Say(500)
		}
		return x.Send()
	})
	w.class("h200")
	w.soon(map[string]string{"a": "Pending NoUnits"})
}
