package tenant

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/often"
)

// world is an input of Build, of either provider.
type world struct {
	namespaces []Namespace
	quotas     []Quota
	hnc        bool
	releases   []Release
	cozy       bool
	outside    string // a namespace that is no tenant
}

func (w world) provider() Provider {
	if w.cozy {
		return Cozystack(w.releases)
	}
	return Labels(w.quotas, w.hnc)
}

func (w world) tree() *Tree {
	return Build(w.namespaces, w.provider(), func(ns Namespace) bool { return ns.Name != w.outside })
}

func (w world) names() []string {
	var out []string
	for _, ns := range w.namespaces {
		out = append(out, ns.Name)
	}
	return out
}

var (
	keyTexts = []string{
		"requests.nvidia.com/A", "nvidia.com/A", "nvidia.com/B", "class.gpuctl.dev/a", "class.gpuctl.dev/b", "gpuctl.dev/gpus", "requests.amd.com/gpu", "requests.cpu",
	}
	goodTexts = []string{"0", "1", "2", "3", "5", "8", "8000m", "1k"}
	badTexts  = []string{"-1", "1.5", "x", "", "10E", "1e2147483648"}
)

// hard draws a budget; of bad texts there are few, or nobody is left.
func hard(t *rapid.T, label string, faulty bool) map[string]string {
	out := map[string]string{}
	for range rapid.IntRange(0, 3).Draw(t, label) {
		text := rapid.SampledFrom(goodTexts).Draw(t, "text")
		if faulty && rapid.IntRange(0, 15).Draw(t, "bad") == 0 {
			text = rapid.SampledFrom(badTexts).Draw(t, "bad text")
		}
		out[rapid.SampledFrom(keyTexts).Draw(t, "key")] = text
	}
	return out
}

// worlds draws trees, mostly whole; with faulty, some levels have faults.
func worlds(faulty bool) *rapid.Generator[world] {
	return rapid.Custom(func(t *rapid.T) world {
		rare := func(label string) bool { return faulty && rapid.IntRange(0, 11).Draw(t, label) == 0 }
		if rapid.Bool().Draw(t, "cozy") {
			return cozyWorld(t, faulty, rare)
		}
		w := world{hnc: rapid.Bool().Draw(t, "hnc")}
		trees := map[string][]string{}
		for i := range rapid.IntRange(1, 9).Draw(t, "namespaces") {
			name := string(rune('a' + i))
			parent := ""
			if up := rapid.IntRange(-1, i-1).Draw(t, "parent"); up >= 0 {
				parent = string(rune('a' + up))
			}
			if rare("odd parent") {
				parent = rapid.SampledFrom([]string{"a", "b", "c", "i", "ghost"}).Draw(t, "which")
			}
			ns := Namespace{Name: name, UID: "u" + name, Labels: map[string]string{}, Terminating: rare("terminating")}
			_, tall := trees[parent]
			switch {
			case w.hnc && (parent == "" || tall) && rapid.Bool().Draw(t, "by HNC"):
				if parent != "" {
					trees[name] = append([]string{parent}, trees[parent]...)
				} else {
					trees[name] = nil
				}
				ns = hncBelow(name, trees[name]...)
				if rare("stale") {
					delete(ns.Labels, parent+hncTreeSuffix)
				}
			case parent != "":
				ns.Labels[ParentLabel] = parent
			}
			w.namespaces = append(w.namespaces, ns)
			for range rapid.IntRange(0, 2).Draw(t, "quotas") {
				w.quotas = append(w.quotas, Quota{Namespace: name, Name: fmt.Sprint("q", len(w.quotas)), Hard: hard(t, "keys", faulty)})
			}
		}
		if rare("outside") {
			w.outside = "b"
		}
		return w
	})
}

func cozyWorld(t *rapid.T, faulty bool, rare func(string) bool) world {
	w := world{cozy: true}
	add := func(r Release) {
		values := map[string]any{}
		for key, text := range hard(t, "keys", faulty) {
			values[key] = text
		}
		r.Values = map[string]any{"resourceQuotas": values}
		w.releases = append(w.releases, r)
	}
	made := []string{"tenant-root"}
	add(Release{Namespace: "tenant-root", Name: "tenant-root"})
	for range rapid.IntRange(0, 8).Draw(t, "tenants") {
		r := Release{Namespace: rapid.SampledFrom(made).Draw(t, "parent"), Name: "tenant-" + rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "name")}
		if rare("dashed") {
			r.Name = "tenant-x-y"
		}
		name := cozyNamespace(r)
		if slices.Contains(made, name) && !rare("claimed") {
			continue
		}
		if !rare("lost") {
			add(r)
		}
		if !slices.Contains(made, name) {
			made = append(made, name)
		}
	}
	for _, name := range made {
		if !rare("gone") {
			w.namespaces = append(w.namespaces, Namespace{Name: name, UID: "u" + name, Terminating: rare("terminating")})
		}
	}
	return w
}

func amounts(t *rapid.T) gpu.Amount {
	return gpu.Amount{
		Resource: rapid.SampledFrom([]gpu.ResourceName{"nvidia.com/A", "nvidia.com/B", "amd.com/gpu"}).Draw(t, "resource"),
		Class:    rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "class"), Units: int64(rapid.IntRange(1, 4).Draw(t, "units")),
	}
}

// TestBudgetsHold grants asks for as long as they are allowed, gives some back,
// and compares every level with a sum of its own.
func TestBudgetsHold(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		w := worlds(true).Draw(t, "world")
		tree := w.tree()
		use, _ := tree.Sum(nil)
		granted := map[string][]gpu.Amount{}
		if len(w.namespaces) == 0 {
			return
		}
		for range rapid.IntRange(1, 25).Draw(t, "asks") {
			name := rapid.SampledFrom(w.names()).Draw(t, "namespace")
			if had := granted[name]; len(had) > 0 && rapid.IntRange(0, 4).Draw(t, "give back") == 0 {
				back := had[0]
				back.Units = -back.Units
				use.Add(name, back)
				granted[name] = had[1:]
				continue
			}
			asks := []gpu.Amount{amounts(t)}
			if rapid.IntRange(0, 3).Draw(t, "two") == 0 {
				asks = append(asks, amounts(t))
			}
			if use.Check(name, asks...) == nil {
				for _, a := range asks {
					use.Add(name, a)
				}
				granted[name] = append(granted[name], asks...)
			}
		}
		for name, want := range naive(tree, granted) {
			for _, limit := range tree.levels[name].limits {
				if got := use.Of(name, limit.Key); got != want[limit.Key] {
					t.Fatalf("%s has %d of %s, want %d", name, got, limit.Key, want[limit.Key])
				}
				if want[limit.Key] > limit.Units {
					t.Fatalf("%s has %d of %s, and its budget is %d", name, want[limit.Key], limit.Key, limit.Units)
				}
			}
		}
	})
}

// naive sums the use of each level over the chains of those below it.
func naive(tree *Tree, granted map[string][]gpu.Amount) map[string]map[Key]int64 {
	out := map[string]map[Key]int64{}
	for name, had := range granted {
		chain, err := tree.Chain(name)
		if err != nil {
			continue // nothing was granted
		}
		for l := range chain.Levels() {
			if out[l.namespace] == nil {
				out[l.namespace] = map[Key]int64{}
			}
			for _, a := range had {
				for _, limit := range l.limits {
					if tree.counts(limit.Key, a) {
						out[l.namespace][limit.Key] += a.Units
					}
				}
			}
		}
	}
	return out
}

// TestWhatIsTakenAwayWasNeverThere adds what stays and what goes, in any order and
// however large, and compares with a sum of what stays.
func TestWhatIsTakenAwayWasNeverThere(t *testing.T) {
	units := rapid.OneOf(rapid.Int64Range(-8, 8), rapid.SampledFrom([]int64{math.MaxInt64, math.MaxInt64 - 1, -math.MaxInt64, 1 << 62}))
	often.Check(t, func(t *rapid.T) {
		tree := family(quota("a", "gpuctl.dev/gpus=8"), quota("acme", "class.gpuctl.dev/a=8"))
		use, _ := tree.Sum(nil)
		stays := map[string][]gpu.Amount{}
		type added struct {
			namespace string
			amount    gpu.Amount
		}
		var goes []added
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			if len(goes) > 0 && rapid.Bool().Draw(t, "one goes") {
				i := rapid.IntRange(0, len(goes)-1).Draw(t, "which")
				goes[i].amount.Units *= -1
				use.Add(goes[i].namespace, goes[i].amount)
				goes = slices.Delete(goes, i, i+1)
				continue
			}
			one := added{rapid.SampledFrom([]string{"a", "b", "acme", "root"}).Draw(t, "namespace"), amounts(t)}
			one.amount.Units = units.Draw(t, "of")
			use.Add(one.namespace, one.amount)
			if rapid.Bool().Draw(t, "it stays") {
				stays[one.namespace] = append(stays[one.namespace], one.amount)
			} else {
				goes = append(goes, one)
			}
		}
		for _, one := range goes {
			one.amount.Units *= -1
			use.Add(one.namespace, one.amount)
		}
		want, _ := tree.Sum(stays)
		for _, level := range []string{"a", "b", "acme", "root"} {
			for _, k := range []Key{{Resource, "nvidia.com/A"}, {Resource, "nvidia.com/B"}, {Resource, "amd.com/gpu"}, {Class, "a"}, {Class, "b"}, {Kind: Total}} {
				if got := use.Of(level, k); got != want.Of(level, k) {
					t.Fatalf("%s has %d of %s, want %d", level, got, k, want.Of(level, k))
				}
			}
		}
	})
}

// TestSum compares with numbers of any size.
func TestSum(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		var got sum
		want := new(big.Int)
		for _, units := range rapid.SliceOfN(rapid.Int64(), 0, 20).Draw(t, "units") {
			got = got.plus(units)
			want.Add(want, big.NewInt(units))
		}
		units := int64(0)
		switch {
		case want.Sign() > 0 && want.IsInt64():
			units = want.Int64()
		case want.Sign() > 0:
			units = math.MaxInt64
		}
		if got.units() != units {
			t.Fatalf("%d, want %d of %s", got.units(), units, want)
		}
	})
}

func TestOrderOfInputDoesNotMatter(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		w := worlds(true).Draw(t, "world")
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		other := w
		other.namespaces = slices.Clone(w.namespaces)
		other.quotas, other.releases = slices.Clone(w.quotas), slices.Clone(w.releases)
		random.Shuffle(len(other.namespaces), func(i, j int) {
			other.namespaces[i], other.namespaces[j] = other.namespaces[j], other.namespaces[i]
		})
		random.Shuffle(len(other.quotas), func(i, j int) { other.quotas[i], other.quotas[j] = other.quotas[j], other.quotas[i] })
		random.Shuffle(len(other.releases), func(i, j int) {
			other.releases[i], other.releases[j] = other.releases[j], other.releases[i]
		})
		if diff := cmp.Diff(told(w.tree()), told(other.tree())); diff != "" {
			t.Fatalf("(-as given +shuffled):\n%s", diff)
		}
	})
}

// told returns all that a tree tells of its tenants, in the operator's words.
func told(tree *Tree) map[string]string {
	out := shownAll(tree)
	for name := range out {
		chain, err := tree.Chain(name)
		if err != nil {
			out[name] += " " + err.Error()
			continue
		}
		for l := range chain.Levels() {
			for _, limit := range l.limits {
				out[name] += " " + limit.Source
			}
		}
	}
	return out
}

// TestFaultWidensNobody breaks one level and looks at all tenants: each has the
// chain that it had or is refused, and only those in or below the broken level
// are. What is in use still counts where it did.
func TestFaultWidensNobody(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		w := worlds(false).Draw(t, "world")
		before := w.tree()
		broken := rapid.SampledFrom(w.names()).Draw(t, "broken")
		after := breakLevel(t, w, broken).tree()
		usage := map[string][]gpu.Amount{}
		for _, name := range w.names() {
			usage[name] = []gpu.Amount{{Resource: "nvidia.com/A", Units: 1}}
		}
		was, _ := before.Sum(usage)
		is, _ := after.Sum(usage)
		for _, name := range before.Tenants() {
			chain, err := before.Chain(name)
			if err != nil {
				t.Fatalf("%s is refused in a whole tree: %v", name, err)
			}
			under := false
			for l := range chain.Levels() {
				under = under || l.namespace == broken
			}
			_, refused := after.Chain(name)
			switch {
			case under && refused == nil:
				t.Fatalf("%s is in or below %s and has %s", name, broken, shown(after, name))
			case under:
				if told := refused.Error(); !strings.Contains(told, `"`+name+`"`) {
					t.Fatalf("%s reads %q", name, told)
				}
			case refused != nil:
				t.Fatalf("%s is not below %s: %v", name, broken, refused)
			case shown(before, name) != shown(after, name):
				t.Fatalf("%s had %s and has %s", name, shown(before, name), shown(after, name))
			}
			if k := (Key{Kind: Total}); !under && is.Of(name, k) < was.Of(name, k) {
				t.Fatalf("%s had %d in use and has %d", name, was.Of(name, k), is.Of(name, k))
			}
		}
	})
}

// breakLevel makes one level unreadable while it stays where it is.
func breakLevel(t *rapid.T, w world, name string) world {
	i := slices.IndexFunc(w.namespaces, func(ns Namespace) bool { return ns.Name == name })
	w.namespaces = slices.Clone(w.namespaces)
	ns := &w.namespaces[i]
	ns.Labels = maps.Clone(ns.Labels)
	bad := rapid.SampledFrom(badTexts).Draw(t, "bad")
	switch kind := rapid.IntRange(0, 3).Draw(t, "fault"); {
	case kind == 0:
		ns.Terminating = true
	case kind == 1 && w.cozy: // its release is gone
		w.releases = slices.DeleteFunc(slices.Clone(w.releases), func(r Release) bool { return cozyNamespace(r) == name })
	case kind == 2 && w.cozy: // the values are no map
		w.releases = slices.Clone(w.releases)
		for j := range w.releases {
			if cozyNamespace(w.releases[j]) == name {
				w.releases[j].Values = map[string]any{"resourceQuotas": map[string]any{"nvidia.com/A": bad}}
			}
		}
	case kind == 1 && ns.Labels[ParentLabel] == "":
		ns.Labels[ParentLabel] = ""
	case w.cozy:
		ns.Terminating = true
	default:
		w.quotas = append(slices.Clone(w.quotas), Quota{Namespace: name, Name: "bad", Hard: map[string]string{"gpuctl.dev/gpus": bad}})
	}
	return w
}

// TestRefusalsAreTrue raises the budget that blocks by what is missing, and no
// other: the next refusal is another's, and after all of them there is none. One
// unit less and it blocks still. Headroom is what Check allows.
func TestRefusalsAreTrue(t *testing.T) {
	often.Check(t, func(t *rapid.T) {
		w := worlds(false).Draw(t, "world")
		tree := w.tree()
		usage := map[string][]gpu.Amount{}
		for range rapid.IntRange(0, 5).Draw(t, "uses") {
			name := rapid.SampledFrom(w.names()).Draw(t, "user")
			usage[name] = append(usage[name], amounts(t))
		}
		use, _ := tree.Sum(usage)
		name := rapid.SampledFrom(w.names()).Draw(t, "asker")
		ask := amounts(t)
		checkHeadroom(t, use, name, ask)
		seen := map[string]bool{}
		for {
			var s *Shortage
			err := use.Check(name, ask)
			if err == nil {
				return
			}
			if !errors.As(err, &s) {
				t.Fatal(err)
			}
			place := s.Level + " " + s.Key.String()
			if seen[place] || s.Missing() < 1 {
				t.Fatalf("%s blocks again, %d missing", place, s.Missing())
			}
			seen[place] = true
			l := tree.levels[s.Level]
			at := slices.IndexFunc(l.limits, func(limit Limit) bool { return limit.Key == s.Key })
			l.limits[at].Units += s.Missing() - 1
			var still *Shortage
			if !errors.As(use.Check(name, ask), &still) || still.Level != s.Level || still.Key != s.Key {
				t.Fatalf("%s does not block with 1 missing", place)
			}
			l.limits[at].Units++
		}
	})
}

func checkHeadroom(t *rapid.T, use *Use, name string, ask gpu.Amount) {
	room, err := use.Headroom(name, ask)
	if err != nil {
		t.Fatal(err)
	}
	ask.Units = max(1, room.Units)
	if allowed := use.Check(name, ask) == nil; allowed != (!room.Limited || room.Units > 0) {
		t.Fatalf("headroom %v, and %d are allowed: %v", room, ask.Units, allowed)
	}
	ask.Units = room.Units + 1
	if room.Limited && use.Check(name, ask) == nil {
		t.Fatalf("headroom %v, and one more is allowed", room)
	}
}

// TestNeverPanics feeds names, labels and values of any shape.
func TestNeverPanics(t *testing.T) {
	word := rapid.SampledFrom([]string{"", "a", "b", "a-b", "tenant-root", "tenant-a", "tenant-a-b", "tenant-", "-", "0", "1", "2", "-1", "99999999999"})
	key := rapid.SampledFrom([]string{ParentLabel, hncIncluded, "a" + hncTreeSuffix, "b" + hncTreeSuffix, hncTreeSuffix, EntitlementPrefix, "x"})
	value := rapid.SampledFrom([]any{nil, "", "1", 1, 1.5, true, []any{}, map[string]any{"a": 1}, map[string]any{"nvidia.com/A": "x"}, map[string]any{"": nil}})
	often.Check(t, func(t *rapid.T) {
		w := world{hnc: rapid.Bool().Draw(t, "hnc"), cozy: rapid.Bool().Draw(t, "cozy"), outside: word.Draw(t, "outside")}
		for range rapid.IntRange(0, 6).Draw(t, "namespaces") {
			w.namespaces = append(w.namespaces, Namespace{
				Name: word.Draw(t, "name"), SubnamespaceOf: word.Draw(t, "of"), Labels: rapid.MapOfN(key, word, 0, 4).Draw(t, "labels"),
			})
			w.quotas = append(w.quotas, Quota{Namespace: word.Draw(t, "in"), Hard: rapid.MapOfN(rapid.String(), rapid.String(), 0, 2).Draw(t, "hard")})
			w.releases = append(w.releases, Release{word.Draw(t, "ns"), word.Draw(t, "release"), map[string]any{"resourceQuotas": value.Draw(t, "values")}})
		}
		tree := w.tree()
		usage := map[string][]gpu.Amount{"a": {{}}, "tenant-a-b": {amounts(t)}, "": {{Units: -1}}}
		use, _ := tree.Sum(usage)
		for _, name := range append(w.names(), "ghost") {
			err := use.Check(name, amounts(t))
			if err != nil {
				_ = err.Error()
			}
			_, _ = use.Headroom(name, gpu.Amount{})
			if chain, err := tree.Chain(name); err == nil {
				chain.Entitled("x")
			}
		}
	})
}
