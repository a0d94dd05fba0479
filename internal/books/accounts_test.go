package books

import "testing"

// A namespace that had a device once costs nothing any more.
func TestEmptyAccountsGo(t *testing.T) {
	b := filled(-1)
	d := device("a", 1)
	b.PutDevice(d)
	b.Snapshot()
	b.DropDevice("a")
	b.Snapshot()
	if len(b.accounts) != 0 {
		t.Errorf("accounts of %d namespaces are left, which have nothing", len(b.accounts))
	}
}
