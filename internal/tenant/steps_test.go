package tenant

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestSteps(t *testing.T) {
	const name gpu.ResourceName = "nvidia.com/X"
	tree := Build([]Namespace{
		{Name: "top"}, {Name: "sub", Labels: map[string]string{ParentLabel: "top"}}, {Name: "other"},
	}, Labels([]Quota{
		{Namespace: "top", Name: "q", Hard: map[string]string{"requests." + string(name): "8"}},
		{Namespace: "sub", Name: "q", Hard: map[string]string{"class.gpuctl.dev/x": "2", "class.gpuctl.dev/y": "1"}},
	}, false), func(n Namespace) bool { return n.Name != "other" })
	use, _ := tree.Sum(map[string][]gpu.Amount{"top": {{Resource: name, Class: "x", Units: 3}}})
	ask := gpu.Amount{Resource: name, Class: "x", Units: 1}

	got, err := use.Steps("sub", ask)
	want := []string{"sub class.gpuctl.dev/x: limit 2, in use 0, asked for 1", "top " + Key{Resource, string(name)}.String() + ": limit 8, in use 3, asked for 1"}
	var text []string
	for _, s := range got {
		text = append(text, s.String())
	}
	if diff := cmp.Diff(want, text); diff != "" || err != nil {
		t.Errorf("Steps() of what is allowed (-want +got): %v\n%s", err, diff)
	}

	ask.Units = 9
	short, ok := errors.AsType[*Shortage](use.Check("sub", ask))
	got, err = use.Steps("sub", ask)
	if !ok || err != nil {
		t.Fatal(short, err)
	}
	if diff := cmp.Diff(short.Steps, got); diff != "" {
		t.Errorf("steps (-of the shortage +of Steps):\n%s", diff)
	}
	if _, err := use.Steps("other", ask); !errors.Is(err, ErrNotTenant) {
		t.Errorf("Steps() of a namespace that is no tenant: %v", err)
	}
}
