package bind

import (
	"testing"
)

// An order whose reason has changed is told so soon, also when the first write of it is
// lost.
func TestBinderTellsAgain(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 4)
	r := w.replica("a")
	w.order("a", 8)
	w.soon(map[string]string{"a": "Pending NotAllowed"}) // there is no such class
	r.set(func(x *exchange) error {
		if x.verb == "PUT" && x.what == "status" && x.n == 1 {
			return x.say(500)
		}
		return x.send()
	})
	w.class("h200")
	w.soon(map[string]string{"a": "Pending NoUnits"})
}
