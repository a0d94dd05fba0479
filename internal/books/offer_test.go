package books

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestOffers(t *testing.T) {
	b := filled(-1, on("n1", device("a", 2)), attached("v", on("n2", device("b", 3))), lost(on("n1", device("c", 1))), device("d", 4))
	b.PutPod(pod("raw", "n1", 1))
	cordoned := node("n3", 4)
	cordoned.Facts.Cordoned = true
	b.PutNode(cordoned)
	east := node("n4", 2)
	east.Facts.Labels = map[string]string{"zone": "east"}
	b.PutNode(east)
	b.PutClass(Class{Name: "east", Resource: h200, NodeSelector: map[string]string{"zone": "east"}})
	b.PutClass(Class{Name: "none", Resource: l40s})
	want := map[string]Offer{
		"h200": {Total: 22, Free: 5 + 5 + 2, Held: 2, Attached: 3, Lost: 1, Permitted: true},
		"east": {Total: 2, Free: 2, Permitted: true},
		"none": {Permitted: true},
	}
	if diff := cmp.Diff(want, b.Offers()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.SetTable(gpu.Table{Set: true, Entries: []gpu.Entry{{List: gpu.ListPCI, Selector: "10DE:2335", Name: h200}}})
	if got := b.Offers(); !got["h200"].Permitted || got["none"].Permitted {
		t.Errorf("permitted: %+v", got)
	}
}

// TestOfferIsOfTheClass: units of another resource name, of a class that had the name
// before, are none of it.
func TestOfferIsOfTheClass(t *testing.T) {
	b := filled(-1, on("n1", device("a", 4)), lost(on("n2", device("b", 2))))
	b.DropClass("h200")
	b.PutClass(Class{Name: "h200", Resource: l40s, MaxCount: 8})
	if diff := cmp.Diff(Offer{Permitted: true}, b.Offers()["h200"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
