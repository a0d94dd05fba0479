package tenant

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLabelsTree(t *testing.T) {
	name := string(h200)
	for story, tc := range map[string]struct {
		namespaces []Namespace
		quotas     []Quota
		hnc        bool
		want       map[string]string
	}{
		"a namespace without a label is a root": {
			namespaces: below("a"),
			want:       map[string]string{"a": "a"},
		},
		"the parent's label leads up to the root": {
			namespaces: below("a<b", "b<c", "c"),
			want:       map[string]string{"a": "a < b < c", "b": "b < c", "c": "c"},
		},
		"a missing parent refuses it and all below, and nobody else": {
			namespaces: below("a<b", "b<ghost", "c"),
			want: map[string]string{
				"a": "refused by ghost: MissingParent", "b": "refused by ghost: MissingParent", "c": "c",
			},
		},
		"an empty label is no root": {
			namespaces: below("a<"),
			want:       map[string]string{"a": "refused by a: TreeUnreadable"},
		},
		"a cycle refuses its members and all below, and nobody else": {
			namespaces: below("a<b", "b<c", "c<b", "d"),
			want: map[string]string{
				"a": "refused by b: Cycle", "b": "refused by b: Cycle", "c": "refused by c: Cycle", "d": "d",
			},
		},
		"what leads back to a level in doubt is no cycle": {
			namespaces: []Namespace{with(hncBelow("a", "b"), ParentLabel, "c"), with(hncBelow("b"), ParentLabel, "a"), hncBelow("c"), with(hncBelow("0"), ParentLabel, "b")}, hnc: true,
			want: map[string]string{"0": "refused by a: Contradiction", "a": "refused by a: Contradiction", "b": "refused by a: Contradiction", "c": "c"},
		},
		"its own parent is a cycle": {
			namespaces: below("a<a"),
			want:       map[string]string{"a": "refused by a: Cycle"},
		},
		"a terminating ancestor refuses: its quota is deleted before it is": {
			namespaces: []Namespace{
				{Name: "a", Labels: map[string]string{ParentLabel: "b"}},
				{Name: "b", Labels: map[string]string{ParentLabel: "c"}, Terminating: true},
				{Name: "c"},
			},
			want: map[string]string{"a": "refused by b: Terminating", "b": "refused by b: Terminating", "c": "c"},
		},
		"a namespace that is listed twice is none": {
			namespaces: append(below("a<b", "b"), below("a")...),
			want:       map[string]string{"a": "refused by a: Contradiction", "b": "b"},
		},
		"budgets are read from resource quotas": {
			namespaces: below("a<b", "b"),
			quotas: []Quota{
				quota("a", "requests."+name+"=4", "class.gpuctl.dev/h200=2", "gpuctl.dev/gpus=6", "requests.cpu=1.5", "count/pods=x"),
				quota("b", "gpuctl.dev/gpus=1k"),
				quota("nobody", "gpuctl.dev/gpus=x"),
			},
			want: map[string]string{
				"a": "a " + name + "=4 class.gpuctl.dev/h200=2 gpuctl.dev/gpus=6 < b gpuctl.dev/gpus=1000",
				"b": "b gpuctl.dev/gpus=1000",
			},
		},
		"of several quotas the smallest of a key counts": {
			namespaces: below("a"),
			quotas:     []Quota{quota("a", "gpuctl.dev/gpus=8"), quota("a", "gpuctl.dev/gpus=4", "class.gpuctl.dev/x=9"), quota("a", "gpuctl.dev/gpus=6")},
			want:       map[string]string{"a": "a class.gpuctl.dev/x=9 gpuctl.dev/gpus=4"},
		},
		"of several quotas one that cannot be read refuses, however small the others": {
			namespaces: below("a"),
			quotas:     []Quota{quota("a", "gpuctl.dev/gpus=0"), quota("a", "gpuctl.dev/gpus=many")},
			want:       map[string]string{"a": "refused by a: BudgetUnreadable"},
		},
		"an ancestor's budget that cannot be read refuses all below, and nobody above or beside": {
			namespaces: below("a<b", "b<c", "c", "d<c"),
			quotas:     []Quota{quota("b", "requests."+name+"=-1"), quota("c", "gpuctl.dev/gpus=3")},
			want: map[string]string{
				"a": "refused by b: BudgetNegative", "b": "refused by b: BudgetNegative",
				"c": "c gpuctl.dev/gpus=3", "d": "d < c gpuctl.dev/gpus=3",
			},
		},
		"another vendor's budget refuses only who asks for it": {
			namespaces: below("a"),
			quotas:     []Quota{quota("a", "requests.amd.com/gpu=1.5")},
			want:       map[string]string{"a": "a amd.com/gpu=0?"},
		},
		"a class that none can be called refuses": {
			namespaces: below("a<b", "b"),
			quotas:     []Quota{quota("a", "class.gpuctl.dev/H200=4")},
			want:       map[string]string{"a": "refused by a: BudgetUnreadable", "b": "b"},
		},
		"a misspelt key of ours refuses": {
			namespaces: below("a"),
			quotas:     []Quota{quota("a", "gpuctl.dev/gpu=4")},
			want:       map[string]string{"a": "refused by a: BudgetUnreadable"},
		},
	} {
		t.Run(story, func(t *testing.T) {
			tree := Build(tc.namespaces, Labels(tc.quotas, tc.hnc), everyone)
			if diff := cmp.Diff(tc.want, shownAll(tree)); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

// hncBelow returns a namespace with the labels that HNC writes.
func hncBelow(name string, ancestors ...string) Namespace {
	ns := Namespace{Name: name, Labels: map[string]string{hncIncluded: "true", name + hncTreeSuffix: "0"}}
	for i, ancestor := range ancestors {
		ns.Labels[ancestor+hncTreeSuffix] = string(rune('1' + i))
	}
	return ns
}

func with(ns Namespace, key, value string) Namespace {
	ns.Labels[key] = value
	return ns
}

func sub(ns Namespace, parent string) Namespace {
	ns.SubnamespaceOf = parent
	return ns
}

func halted(ns Namespace) Namespace {
	ns.HNCHalted = true
	return ns
}

func TestHNC(t *testing.T) {
	for story, tc := range map[string]struct {
		namespaces []Namespace
		without    bool // HNC is not installed
		want       map[string]string
	}{
		"its tree labels are the tree": {
			namespaces: []Namespace{hncBelow("a", "b", "c"), hncBelow("b", "c"), hncBelow("c")},
			want:       map[string]string{"a": "a < b < c", "b": "b < c", "c": "c"},
		},
		"without HNC anybody may have written them": {
			namespaces: []Namespace{hncBelow("a", "b"), hncBelow("b")}, without: true,
			want: map[string]string{"a": "a", "b": "b"},
		},
		"a namespace that it leaves alone has its label": {
			namespaces: []Namespace{below("a<b")[0], hncBelow("b")},
			want:       map[string]string{"a": "a < b", "b": "b"},
		},
		"its root may hang below another by label": {
			namespaces: []Namespace{hncBelow("a", "b"), with(hncBelow("b"), ParentLabel, "c"), below("c")[0]},
			want:       map[string]string{"a": "a < b < c", "b": "b < c", "c": "c"},
		},
		"both may say the same": {
			namespaces: []Namespace{with(hncBelow("a", "b"), ParentLabel, "b"), hncBelow("b")},
			want:       map[string]string{"a": "a < b", "b": "b"},
		},
		"two parents are none": {
			namespaces: []Namespace{with(hncBelow("a", "b"), ParentLabel, "c"), hncBelow("b"), hncBelow("c")},
			want:       map[string]string{"a": "refused by a: Contradiction", "b": "b", "c": "c"},
		},
		"a tree that is not written yet is no root": {
			namespaces: []Namespace{{Name: "a", Labels: map[string]string{hncIncluded: "true"}}, {Name: "b", SubnamespaceOf: "c"}, hncBelow("c")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "refused by b: TreeUnreadable", "c": "c"},
		},
		"a subnamespace whose labels stop is no root": {
			namespaces: []Namespace{sub(hncBelow("a"), "b"), hncBelow("b")},
			want:       map[string]string{"a": "refused by a: Contradiction", "b": "b"},
		},
		"a subnamespace whose labels agree": {
			namespaces: []Namespace{sub(hncBelow("a", "b"), "b"), hncBelow("b")},
			want:       map[string]string{"a": "a < b", "b": "b"},
		},
		"labels that its parent's have left behind": {
			namespaces: []Namespace{hncBelow("a", "b", "c"), hncBelow("b", "d"), hncBelow("c"), hncBelow("d")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "b < d", "c": "c", "d": "d"},
		},
		"a halted namespace looks like a root and is none": {
			namespaces: []Namespace{halted(hncBelow("a")), hncBelow("b", "a"), hncBelow("c")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "refused by a: TreeUnreadable", "c": "c"},
		},
		"labels that lead back": {
			namespaces: []Namespace{hncBelow("a", "b"), hncBelow("b", "a")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "refused by b: TreeUnreadable"},
		},
		"a folder above an external namespace is missing": {
			namespaces: []Namespace{hncBelow("a", "b", "folder"), hncBelow("b", "folder")},
			want:       map[string]string{"a": "refused by folder: MissingParent", "b": "refused by folder: MissingParent"},
		},
		"depths with a gap": {
			namespaces: []Namespace{{Name: "a", Labels: map[string]string{"a" + hncTreeSuffix: "0", "b" + hncTreeSuffix: "2"}}, hncBelow("b")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "b"},
		},
		"two at one depth": {
			namespaces: []Namespace{{Name: "a", Labels: map[string]string{"a" + hncTreeSuffix: "0", "b" + hncTreeSuffix: "1", "c" + hncTreeSuffix: "1"}}, hncBelow("b")},
			want:       map[string]string{"a": "refused by a: TreeUnreadable", "b": "b"},
		},
		"a depth that is no number": {
			namespaces: []Namespace{{Name: "a", Labels: map[string]string{"a" + hncTreeSuffix: "-0"}}},
			want:       map[string]string{"a": "refused by a: TreeUnreadable"},
		},
		"a depth 0 that is another's": {
			namespaces: []Namespace{{Name: "a", Labels: map[string]string{"b" + hncTreeSuffix: "0"}}},
			want:       map[string]string{"a": "refused by a: TreeUnreadable"},
		},
	} {
		t.Run(story, func(t *testing.T) {
			tree := Build(tc.namespaces, Labels(nil, !tc.without), everyone)
			if diff := cmp.Diff(tc.want, shownAll(tree)); diff != "" {
				t.Errorf("chains (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTenants(t *testing.T) {
	tree := Build(below("a<b", "b<kube-system", "kube-system"), Labels([]Quota{quota("kube-system", "gpuctl.dev/gpus=1")}, false),
		func(ns Namespace) bool { return ns.Name != "kube-system" })
	for name, want := range map[string]string{
		"a":           "a < b < kube-system gpuctl.dev/gpus=1", // a level need not be a tenant
		"kube-system": "no tenant",
		"nowhere":     "refused by nowhere: UnknownNamespace",
	} {
		if got := shown(tree, name); got != want {
			t.Errorf("chain of %s: %q, want %q", name, got, want)
		}
	}
	if diff := cmp.Diff([]string{"a", "b"}, tree.Tenants()); diff != "" {
		t.Errorf("tenants (-want +got):\n%s", diff)
	}
	chain, err := tree.Chain("a")
	if err != nil {
		t.Fatal(err)
	}
	for l := range chain.Levels() {
		if want := "uid-" + l.Namespace(); l.UID() != want {
			t.Errorf("UID %q, want %q", l.UID(), want)
		}
	}
}

func TestEntitled(t *testing.T) {
	namespaces := []Namespace{
		{Name: "a", Labels: map[string]string{ParentLabel: "b", EntitlementPrefix + "own": "true", EntitlementPrefix + "no": "false", EntitlementPrefix: "true"}},
		{Name: "b", Labels: map[string]string{EntitlementPrefix + "vgpu": "true"}},
		{Name: "c", Labels: map[string]string{ParentLabel: "b", EntitlementPrefix + "child": "true"}},
	}
	for _, name := range []string{"k", "l", "m", "n", "o", "p", "q"} { // a map has them in any order
		namespaces[1].Labels[EntitlementPrefix+name] = "true"
	}
	chain, err := Build(namespaces, Labels(nil, false), everyone).Chain("a")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"own": "a", "vgpu": "b", "no": "", "child": "", "other": "", "": "a", "k": "b", "m": "b", "o": "b", "q": "b"} {
		level, ok := chain.Entitled(name)
		if level != want || ok != (want != "") {
			t.Errorf("Entitled(%q) = %q, %v; want %q", name, level, ok, want)
		}
	}
}
