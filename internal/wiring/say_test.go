package wiring

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// quiet returns a controller that speaks to nobody.
func quiet(t *testing.T, now time.Time) *Controller {
	t.Helper()
	metrics, err := NewMetrics(prometheus.NewRegistry())
	if err != nil {
		t.Fatal(err)
	}
	return New(Options{Metrics: metrics, Now: func() time.Time { return now }})
}

func theKubeVirt() *patch.Target {
	return &patch.Target{Document: manifest.Live("server", manifest.Object{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt", "metadata": map[string]any{"name": "k", "namespace": "n"},
	})}
}

func TestHowItStands(t *testing.T) {
	heldBack := refusalOf(diagnose.New("GPU0319", "KubeVirt n/k", diagnose.Values{"names": "nvidia.com/X", "users": "VirtualMachine a/b", "permit": "", "note": ""}))
	keyed := refusalOf(diagnose.New("GPU0329", "HyperConverged n/k", diagnose.Values{"target": "t", "selector": "s", "one": "1", "onewhy": "", "two": "2", "twowhy": ""}))
	gate := diagnose.New("GPU0323", "KubeVirt n/k", diagnose.Values{"object": "KubeVirt n/k", "namespace": "n"})
	notPassedOn := diagnose.New("GPU0327", "HyperConverged n/k", diagnose.Values{"target": "HyperConverged n/k", "kubevirt": "KubeVirt n/k"})
	tests := map[string]struct {
		out    outcome
		gate   *diagnose.Finding
		status metav1.ConditionStatus
		reason string
		words  []string
	}{
		"well": {status: metav1.ConditionTrue, reason: v1alpha1.ReasonWired},
		"well, but for an entry": {
			out:    outcome{odd: []diagnose.Finding{gate, diagnose.New("GPU0318", "HyperConverged n/k", diagnose.Values{"target": "t", "selector": "s", "name": "n"}), gate}},
			status: metav1.ConditionTrue, reason: v1alpha1.ReasonWired, words: []string{"see gpuctl diagnose: GPU0318, GPU0323"},
		},
		"the gate is not live":      {gate: &gate, status: metav1.ConditionFalse, reason: v1alpha1.ReasonRefused, words: []string{"GPU0323"}},
		"it is not passed on":       {gate: &notPassedOn, status: metav1.ConditionFalse, reason: v1alpha1.ReasonNotPassedOn, words: []string{"GPU0327"}},
		"the first entry":           {out: outcome{wired: heldBack}, status: metav1.ConditionFalse, reason: v1alpha1.ReasonHeldBack, words: []string{"GPU0319", "VirtualMachine a/b"}},
		"another refusal":           {out: outcome{wired: keyed}, gate: &gate, status: metav1.ConditionFalse, reason: v1alpha1.ReasonRefused, words: []string{"GPU0329"}},
		"contested":                 {out: outcome{wired: keyed, backed: true}, status: metav1.ConditionFalse, reason: v1alpha1.ReasonBackedOff, words: []string{"within a minute"}},
		"no KubeVirt":               {out: outcome{wired: patch.ErrNoTarget}, status: metav1.ConditionUnknown, reason: v1alpha1.ReasonNoKubeVirt},
		"a name of no known device": {out: outcome{wired: &unpermittedError{[]string{"nvidia.com/MINE"}}}, status: metav1.ConditionFalse, reason: v1alpha1.ReasonIncomplete, words: []string{"nvidia.com/MINE"}},
		"an API server at odds":     {out: outcome{wired: errors.New("no " + strings.Repeat("x", 2000))}, status: metav1.ConditionFalse, reason: v1alpha1.ReasonFailed, words: []string{"…"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			c := quiet(t, noon)
			c.gate.Store(tc.gate)
			tc.out.target = theKubeVirt()
			got := c.wired(&tc.out)
			if got.Status != tc.status || got.Reason != tc.reason || len(got.Message) > 1024 {
				t.Errorf("condition %+v", got)
			}
			for _, word := range tc.words {
				if !strings.Contains(got.Message, word) {
					t.Errorf("it does not say %q: %s", word, got.Message)
				}
			}
		})
	}
}

// Who takes over goes on with what the leader before has seen, and a status that says
// nothing new is the same.
func TestStatusIsTakenOver(t *testing.T) {
	c := quiet(t, noon)
	out := outcome{target: theKubeVirt()}
	for i := range 5 {
		c.contest.add(revert{at: noon.Add(time.Duration(i-5) * time.Minute), manager: "helm", lost: "10DE:2335 as nvidia.com/X"})
	}
	c.contest.wrote = noon.Add(-30 * time.Second)
	said := c.describe(&out)
	if is := said.Conditions[1]; is.Type != v1alpha1.ConditionContested || is.Status != metav1.ConditionTrue || !strings.Contains(is.Message, "helm took 10DE:2335 as nvidia.com/X out of KubeVirt n/k") {
		t.Errorf("condition %+v", is)
	}

	next := quiet(t, noon)
	next.takeOver(said)
	if diff := cmp.Diff(said, next.describe(&out)); diff != "" {
		t.Errorf("the next leader says (-before +after):\n%s", diff)
	}
	if wait := next.contest.wait(noon); wait != 30*time.Second {
		t.Errorf("the next leader waits for %s", wait)
	}
}

// A clock that was ahead, or somebody's hand, holds no write back for long; a revert that
// was counted and not repaired is not counted again.
func TestStatusFromAnotherClock(t *testing.T) {
	at := func(d time.Duration) metav1.MicroTime { return metav1.MicroTime{Time: noon.Add(d)} }
	wrote := at(5 * time.Hour)
	s := &v1alpha1.GPUWiringStatus{LastWrite: &wrote}
	for range 4 {
		s.Reverts = append(s.Reverts, v1alpha1.Revert{Time: at(5 * time.Hour)})
	}
	c := quiet(t, noon)
	c.takeOver(s)
	if wait, calm := c.contest.wait(noon), c.contest.calm(noon); wait > pause || calm > window || c.undone {
		t.Errorf("it waits for %s and is calm after %s; undone: %t", wait, calm, c.undone)
	}
	if wait := c.contest.wait(noon.Add(pause)); wait != 0 {
		t.Errorf("a minute later it waits for %s", wait)
	}
	c = quiet(t, noon)
	wrote = at(-time.Minute)
	c.takeOver(&v1alpha1.GPUWiringStatus{LastWrite: &wrote, Reverts: []v1alpha1.Revert{{Time: at(-time.Second)}}})
	if !c.undone {
		t.Error("the last revert would be counted again")
	}
}

func TestNews(t *testing.T) {
	wired := func(reason string) metav1.Condition { return v1alpha1.Wired(metav1.ConditionFalse, reason, "so") }
	calm, contested := v1alpha1.Contested(""), v1alpha1.Contested("helm")
	conditions := map[string]metav1.Condition{
		"held": wired(v1alpha1.ReasonHeldBack), "refused": wired(v1alpha1.ReasonRefused), "failed": wired(v1alpha1.ReasonFailed),
		"none": wired(v1alpha1.ReasonNoKubeVirt), "wired": v1alpha1.Wired(metav1.ConditionTrue, v1alpha1.ReasonWired, ""), "calm": calm, "contested": contested,
	}
	tests := map[string]struct{ before, now, want []string }{
		"at first":           {nil, []string{"wired", "calm"}, nil},
		"held back at first": {nil, []string{"held", "calm"}, []string{"WiringHeldBack"}},
		"still held back":    {[]string{"held", "calm"}, []string{"held", "calm"}, nil},
		"refused now":        {[]string{"wired", "calm"}, []string{"refused", "calm"}, []string{"WiringRefused"}},
		"contested":          {[]string{"wired", "calm"}, []string{"wired", "contested"}, []string{"WiringContested"}},
		"no more":            {[]string{"wired", "contested"}, []string{"wired", "calm"}, []string{"WiringCalm"}},
		"KubeVirt went":      {[]string{"wired", "calm"}, []string{"none", "calm"}, nil},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			pick := func(names []string) (s v1alpha1.GPUWiringStatus) {
				for _, n := range names {
					s.Conditions = append(s.Conditions, conditions[n])
				}
				return s
			}
			before, now := pick(tc.before), pick(tc.now)
			var got []string
			for _, e := range news(&before, &now) {
				got = append(got, e.Reason)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Events (-want +got):\n%s", diff)
			}
		})
	}
}
