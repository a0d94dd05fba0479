package bind

import (
	"testing"
	"time"
)

// An order that waits, and is slow to be told why, does not keep another one waiting that
// fits.
func TestBinderPlacesWhileItTells(t *testing.T) {
	w := newWorld(t)
	w.serves("n1", 1)
	w.class("h200")
	r := w.replica("a")
	w.order("before", 1)
	w.soon(map[string]string{"before": "Held n1"})
	r.set(func(x *exchange) error {
		if x.what == "status" && x.name == "hopeless" {
			time.Sleep(8 * time.Second)
		}
		return x.send()
	})
	w.order("hopeless", 8)
	time.Sleep(200 * time.Millisecond)
	w.serves("n2", 4)
	w.order("fits", 1)
	w.soon(map[string]string{"fits": "Held n2"})
}
