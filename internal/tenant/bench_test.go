package tenant

import (
	"fmt"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// fleet is 5,000 namespaces in four levels, all with budgets.
func fleet() ([]Namespace, []Quota) {
	var namespaces []Namespace
	var all []Quota
	add := func(name, parent string) string {
		ns := Namespace{Name: name, UID: "uid-" + name, Labels: map[string]string{"kubernetes.io/metadata.name": name, "team": "x"}}
		if parent != "" {
			ns.Labels[ParentLabel] = parent
		}
		namespaces = append(namespaces, ns)
		all = append(all, quota(name, "requests."+string(h200)+"=1000000", "class.gpuctl.dev/h200=1000000", "gpuctl.dev/gpus=1000000", "requests.cpu=100", "pods=50"))
		return name
	}
	root := add("root", "")
	for i := range 49 {
		org := add(fmt.Sprintf("org-%d", i), root)
		for j := range 10 {
			team := add(fmt.Sprintf("org-%d-team-%d", i, j), org)
			for k := range 9 {
				add(fmt.Sprintf("org-%d-team-%d-%d", i, j, k), team)
			}
		}
	}
	for len(namespaces) < 5000 {
		add(fmt.Sprintf("alone-%d", len(namespaces)), "")
	}
	return namespaces, all
}

func BenchmarkBuild(b *testing.B) {
	namespaces, all := fleet()
	b.ReportAllocs()
	for b.Loop() {
		Build(namespaces, Labels(all, false), everyone)
	}
}

func BenchmarkSum(b *testing.B) {
	namespaces, all := fleet()
	tree := Build(namespaces, Labels(all, false), everyone)
	usage := map[string][]gpu.Amount{}
	for _, ns := range namespaces {
		usage[ns.Name] = []gpu.Amount{gpus("h200", 2), gpus("", 1)}
	}
	b.ReportAllocs()
	for b.Loop() {
		tree.Sum(usage)
	}
}

func BenchmarkCheck(b *testing.B) {
	namespaces, all := fleet()
	use, _ := Build(namespaces, Labels(all, false), everyone).Sum(map[string][]gpu.Amount{"org-7-team-3-2": {gpus("h200", 2)}})
	b.ReportAllocs()
	for b.Loop() {
		if err := use.Check("org-7-team-3-2", gpus("h200", 4)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	namespaces, all := fleet()
	use, _ := Build(namespaces, Labels(all, false), everyone).Sum(nil)
	b.ReportAllocs()
	for b.Loop() {
		use.Add("org-7-team-3-2", gpus("h200", 1))
		use.Add("org-7-team-3-2", gpus("h200", -1))
	}
}

func TestCheckAllocatesNothing(t *testing.T) {
	use, _ := family(quota("a", "gpuctl.dev/gpus=8"), quota("acme", "class.gpuctl.dev/h200=8")).Sum(map[string][]gpu.Amount{"b": {gpus("h200", 2)}})
	if n := testing.AllocsPerRun(100, func() { _ = use.Check("a", gpus("h200", 4)) }); n > 0 {
		t.Errorf("a check that allows takes %v allocations", n)
	}
}
