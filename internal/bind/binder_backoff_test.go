package bind

import (
	"testing"
	"time"
)

// Who cannot lead does not write a term a second for ever.
func TestBinderBacksOffFromLeading(t *testing.T) {
	w := newWorld(t)
	r := w.replica("a")
	r.set(func(x *exchange) error {
		if x.what == "devices" {
			return x.say(403)
		}
		return x.send()
	})
	time.Sleep(10 * time.Second)
	if _, l := w.stored(); l.Term > 5 {
		t.Errorf("after 10 s it is term %d", l.Term)
	}
}
