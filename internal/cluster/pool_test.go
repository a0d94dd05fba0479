package cluster

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/usage"
)

// Who shares what a pool knows does not get somebody else's.
func TestPool(t *testing.T) {
	p := &pool{}
	for i := range int64(poolSize + 2) {
		list := amounts{"cpu": i, "memory": 1}
		if diff := cmp.Diff(list, share(p, list)); diff != "" {
			t.Fatalf("(-want +got):\n%s", diff)
		}
		if name := fmt.Sprint("worker-", i); p.text(name) != name {
			t.Fatalf("%s is %s", name, p.text(name))
		}
	}
	if len(p.values) > poolSize || len(p.texts) > poolSize {
		t.Errorf("it knows %d values and %d texts", len(p.values), len(p.texts))
	}
}

// What looks alike and is something else is not shared.
func TestPoolTellsApart(t *testing.T) {
	p := &pool{}
	values := map[string]any{
		"nothing": nil, "false": false, "a text": "1", "a number": int64(1), "a fraction": float64(1), "no list": map[string]any{}, "no mapping": []any{},
		"two": []any{"a", "b"}, "one": []any{"ab"}, "a list of a number": []any{int64(1)}, "of a fraction": []any{float64(1)}, "nested": []any{[]any{"a"}, "b"}, "deeper": []any{[]any{"a", "b"}},
		"a key": map[string]any{"a": "b"}, "two keys": map[string]any{"a": "b", "c": "d"}, "a longer one": map[string]any{"a": "bcd"},
	}
	for range 2 {
		for name, v := range values {
			if diff := cmp.Diff(v, p.alike(v)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", name, diff)
			}
		}
	}
	if diff := cmp.Diff(amounts{"nvidia.com/X": 1}, share(p, amounts{"nvidia.com/X": 1})) +
		cmp.Diff(usage.Requests{"nvidia.com/X": 1}, share(p, usage.Requests{"nvidia.com/X": 1})); diff != "" {
		t.Errorf("of two kinds (-want +got):\n%s", diff)
	}
}

// Nodes that are alike have but their names for themselves.
func TestNodesShare(t *testing.T) {
	const node = `{apiVersion: v1, kind: Node, metadata: {name: %s, labels: {zone: east}}, spec: {taints: [{key: a}]}, status: {allocatable: {cpu: "4"}, capacity: {nvidia.com/X: "1"}}}`
	const inventory = `{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: %s}, spec: {functions: [{address: "0000:18:00.0", id: "10de:2335", class: "0302"}]}}`
	p := &pool{}
	for _, text := range []string{node, inventory} {
		a, b := decode(t, fmt.Sprintf(text, "a")), decode(t, fmt.Sprintf(text, "b"))
		p.trim(a)
		p.trim(b)
		if a.GetName() != "a" || b.GetName() != "b" {
			t.Errorf("a is %s, b is %s", a.GetName(), b.GetName())
		}
		for _, part := range []string{"spec", "status"} {
			there, _ := a.Object[part].(map[string]any)
			if there == nil {
				continue
			}
			there["mark"] = true
			if other, _ := b.Object[part].(map[string]any); other["mark"] != true {
				t.Errorf("the %s of a %s is not shared", part, a.GetKind())
			}
		}
	}
}
