package patch

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

func asRefusal(err error, target **Refusal) bool { return errors.As(err, target) }

func TestPlanIsIdempotent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		first, ok := planOf(t, in)
		if !ok {
			return
		}
		second, ok := planOf(t, with(in, first.Object))
		if !ok || len(second.Edits) > 0 || len(second.Changes) > 0 {
			t.Fatalf("the second plan changes: %+v", second.Changes)
		}
		if diff := cmp.Diff(first.Object, second.Object); diff != "" {
			t.Fatalf("the second plan's object differs:\n%s", diff)
		}
	})
}

func TestRemoveRestores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := manifest.DeepCopy(in.Target.Object)
		added, ok := planOf(t, in)
		if !ok {
			return
		}
		if diff := cmp.Diff(before, any(in.Target.Object)); diff != "" {
			t.Fatalf("the plan changed its input:\n%s", diff)
		}
		removed, err := Remove(with(in, added.Object))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, any(removed.Object)); diff != "" {
			t.Fatalf("add then remove (-before +after):\n%s", diff)
		}
	})
}

// TestRemoveInSteps adds twice, as an installation does whose nodes come later.
func TestRemoveInSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		before := manifest.DeepCopy(in.Target.Object)
		early := in
		early.Hosts, early.Nodes, early.Permits = nil, nil, nil
		first, ok := planOf(t, early)
		if !ok {
			return
		}
		second, ok := planOf(t, with(in, first.Object))
		if !ok {
			return
		}
		removed, err := Remove(with(in, second.Object))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(before, any(removed.Object)); diff != "" {
			t.Fatalf("add, add and remove (-before +after):\n%s", diff)
		}
	})
}

// TestPlanKeepsWhatIsThere checks without Remove's help that every value of the
// input is in the result, at the same place.
func TestPlanKeepsWhatIsThere(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		result, ok := planOf(t, in)
		if ok {
			contains(t, "", in.Target.Object, result.Object)
		}
	})
}

func contains(t *rapid.T, at string, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		a, ok := after.(map[string]any)
		if !ok {
			t.Fatalf("%s was a mapping, is %T", at, after)
		}
		for k, v := range b {
			if got, ok := a[k]; ok || v != nil {
				contains(t, at+"."+k, v, got)
			}
		}
	case []any:
		a, ok := after.([]any)
		if !ok || len(a) < len(b) {
			t.Fatalf("%s had %d items, is %v", at, len(b), after)
		}
		for i := range b {
			contains(t, at+"[]", b[i], a[i])
		}
	case nil: // a null may become a mapping or a list
	default:
		if before != after {
			t.Fatalf("%s was %v, is %v", at, before, after)
		}
	}
}

// TestPlanLeavesMdevConfiguration checks that KubeVirt's own making of mediated devices
// is never switched or changed.
func TestPlanLeavesMdevConfiguration(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		path := schemaOf(&in.Target).mdevConfig()
		before, had := manifest.Lookup(in.Target.Object, path)
		text := jsonText(before)
		for _, plan := range []func(Input) (Result, error){Plan, Remove} {
			result, err := plan(in)
			if err != nil {
				continue
			}
			after, has := manifest.Lookup(result.Object, path)
			if had != has || jsonText(after) != text {
				t.Fatalf("%s was %s, is %s", path, text, jsonText(after))
			}
		}
	})
}

func TestInputOrderDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		shuffled := in
		shuffled.Hosts = rapid.Permutation(slices.Clone(in.Hosts)).Draw(t, "hosts")
		shuffled.Nodes = rapid.Permutation(slices.Clone(in.Nodes)).Draw(t, "nodes")
		shuffled.Workloads = rapid.Permutation(slices.Clone(in.Workloads)).Draw(t, "workloads")
		shuffled.Permits = rapid.Permutation(slices.Clone(in.Permits)).Draw(t, "permits")
		a, errA := Plan(in)
		b, errB := Plan(shuffled)
		if (errA == nil) != (errB == nil) || errA != nil && errA.Error() != errB.Error() {
			t.Fatalf("refused %v and %v", errA, errB)
		}
		if diff := cmp.Diff(a.Object, b.Object); diff != "" {
			t.Fatalf("the objects differ:\n%s", diff)
		}
		if diff := cmp.Diff(a.Findings, b.Findings); diff != "" {
			t.Fatalf("the findings differ:\n%s", diff)
		}
	})
}

// TestAddsOnlyGoodEntries checks the house rules of every entry that is added.
func TestAddsOnlyGoodEntries(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		result, ok := planOf(t, in)
		if !ok {
			return
		}
		s := schemaOf(&in.Target)
		for _, c := range result.Changes {
			entry, isEntry := c.Value.(manifest.Object)
			if !isEntry {
				continue
			}
			name := gpu.ResourceName(entry["resourceName"].(string))
			selector, isPCI := entry[s.pciSelector].(string)
			if id, err := gpu.ParseID(selector); isPCI && (err != nil || id.Selector() != selector) {
				t.Errorf("selector %q is not upper-case vendor:device", selector)
			}
			if mdev, _ := entry["mdevNameSelector"].(string); !isPCI && gpu.MdevResource(mdev) != name && !slices.Contains(in.Permits, Permit{Mdev: mdev, Name: name}) {
				t.Errorf("mediated device type %q is not %s", mdev, name)
			}
			external, isFlag := entry["externalResourceProvider"].(bool)
			if name.Check() != nil || name.IsContainer() || !isFlag || !external && !name.IsVGPU() || len(entry) != 3 {
				t.Errorf("added %v", entry)
			}
		}
	})
}

// TestFindingsAreFilledIn fails on a code that the catalogue lacks and on a
// placeholder that got no value.
func TestFindingsAreFilledIn(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		result, err := Plan(drawInput(t))
		findings := result.Findings
		var refusal *Refusal
		if asRefusal(err, &refusal) {
			findings = refusal.Findings
		}
		for _, f := range findings {
			if strings.ContainsAny(f.Message+f.Hint, "{}") || f.Object == "" {
				t.Errorf("%+v is not filled in", f)
			}
		}
	})
}

// drawAny draws any JSON value, of keys that the plan looks at.
func drawAny(t *rapid.T, depth int) any {
	switch kind := rapid.IntRange(0, 6).Draw(t, "kind"); {
	case kind == 0:
		return nil
	case kind == 1:
		return rapid.SampledFrom(append(slices.Clone(someNames), someSelectors...)).Draw(t, "text")
	case kind == 2:
		return json.Number("1e07")
	case kind == 3:
		return rapid.Bool().Draw(t, "bool")
	case depth == 0:
		return "x"
	case kind == 4:
		return drawList(t, "list", func() any { return drawAny(t, depth-1) })
	default:
		out := manifest.Object{}
		for range rapid.IntRange(0, 4).Draw(t, "keys") {
			key := rapid.SampledFrom([]string{
				"spec", "configuration", "permittedHostDevices", "pciHostDevices", "mediatedDevices", "usb", "developerConfiguration",
				"featureGates", "disabledFeatureGates", "metadata", "annotations", RecordKey, "resourceName", "pciVendorSelector", "virtualization",
			}).Draw(t, "key")
			out[key] = drawAny(t, depth-1)
		}
		return out
	}
}

func TestNoTargetPanics(t *testing.T) {
	refused, planned := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		kind := rapid.SampledFrom([]string{"KubeVirt", "HyperConverged"}).Draw(t, "kind")
		obj := manifest.Object{"kind": kind, "apiVersion": "kubevirt.io/v1", "spec": drawAny(t, 4), "metadata": drawAny(t, 3)}
		for _, plan := range []func(Input) (Result, error){Plan, Remove} {
			_, err := plan(with(in, obj))
			var refusal *Refusal
			switch {
			case err == nil:
				planned++
			case asRefusal(err, &refusal):
				refused++
			default:
				t.Fatalf("neither a plan nor a refusal: %v", err)
			}
		}
	})
	if refused == 0 || planned == 0 {
		t.Errorf("%d refused, %d planned: the generator misses the mark", refused, planned)
	}
}
