package bind

import (
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/test/wire"
)

// Who cannot lead does not write a term a second for ever.
func TestBinderBacksOffFromLeading(t *testing.T) {
	w := newWorld(t)
	r := w.replica("a")
	r.Set(func(x *wire.Exchange) error {
		if x.What == "devices" {
			return x.Say(403)
		}
		return x.Send()
	})
	time.Sleep(10 * time.Second)
	if _, l := w.stored(); l.Term > 5 {
		t.Errorf("after 10 s it is term %d", l.Term)
	}
}
