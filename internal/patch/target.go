package patch

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Kinds that gpuctl can wire.
const (
	KindKubeVirt       = "KubeVirt"
	KindHyperConverged = "HyperConverged"
)

// Refusal is a plan that must not be carried out, with the reasons; or, when it
// is Written, one that was carried out and does not do what it should.
type Refusal struct {
	Findings []diagnose.Finding
	Written  bool
}

// Error joins the messages of the findings of severity error.
func (r *Refusal) Error() string {
	var out []string
	for _, f := range r.Findings {
		if f.Severity == diagnose.Error {
			out = append(out, f.Object+": "+f.Message)
		}
	}
	return strings.Join(out, "; ")
}

// Only reports that every finding of severity error has the code.
func (r *Refusal) Only(code diagnose.Code) bool {
	for _, f := range r.Findings {
		if f.Severity == diagnose.Error && f.Code != code {
			return false
		}
	}
	return true
}

func refuse(code diagnose.Code, object string, values diagnose.Values) *Refusal {
	return &Refusal{Findings: []diagnose.Finding{diagnose.New(code, object, values)}}
}

// badShape refuses an object in which something is of another kind than it should.
func badShape(object string, err error) *Refusal {
	return refuse("GPU0321", object, diagnose.Values{"object": object, "problem": err.Error()})
}

// Target is the object that a plan changes.
type Target struct {
	manifest.Document
	// Managed is the KubeVirt CR that a HyperConverged target overwrites, nil
	// for a KubeVirt target or when it was not given.
	Managed *manifest.Document
	// PassedOver names the other objects of these kinds that do not count.
	PassedOver []string
}

// ErrNoTarget is returned when there is no object to wire.
var ErrNoTarget = errors.New("no KubeVirt CR")

// ChooseDeployed is Choose for a live cluster: KubeVirt's operator must have taken
// the CR up.
func ChooseDeployed(docs []manifest.Document) (Target, error) {
	t, err := Choose(docs)
	if err != nil {
		return t, err
	}
	kubevirt := &t.Document
	if t.Managed != nil {
		kubevirt = t.Managed
	}
	if kubevirt.Kind() == KindKubeVirt && phase(kubevirt) == "" {
		return Target{}, fmt.Errorf("%w: %s is not deployed yet (status.phase is empty); is virt-operator running?", ErrNoTarget, kubevirt.Ref())
	}
	return t, nil
}

// Choose picks the object to wire among the given ones: the KubeVirt CR, or the
// HyperConverged that manages it. There must be exactly one.
func Choose(docs []manifest.Document) (Target, error) {
	kubevirt, passed, err := one(docs, KindKubeVirt, "kubevirt.io/")
	if err != nil {
		return Target{}, err
	}
	hco, more, err := one(docs, KindHyperConverged, "hco.kubevirt.io/")
	if err != nil {
		return Target{}, err
	}
	passed = append(passed, more...)
	switch {
	case kubevirt == nil && hco == nil && len(passed) > 0:
		return Target{}, fmt.Errorf("%w: passed over %s", ErrNoTarget, strings.Join(passed, ", "))
	case kubevirt == nil && hco == nil:
		return Target{}, fmt.Errorf("%w: neither a KubeVirt nor a HyperConverged object is there; kubectl get kubevirt -A shows them, "+
			"and on files: kubectl get kubevirt -A -o yaml > kubevirt.yaml, then -f kubevirt.yaml", ErrNoTarget)
	case kubevirt == nil:
		return Target{Document: *hco, PassedOver: passed}, nil
	}
	owner, managed := managedBy(kubevirt)
	switch {
	case managed && hco == nil:
		return Target{}, refuse("GPU0320", kubevirt.Ref(), diagnose.Values{"object": kubevirt.Ref(), "owner": owner})
	case managed, hco != nil && hco.Meta("namespace") == kubevirt.Meta("namespace"):
		return Target{Document: *hco, Managed: kubevirt, PassedOver: passed}, nil
	default:
		return Target{Document: *kubevirt, PassedOver: passed}, nil
	}
}

// KubeVirt picks the KubeVirt CR as Choose does, nil when there is none, and says
// whether a HyperConverged manages it.
func KubeVirt(docs []manifest.Document) (kubevirt *manifest.Document, managed bool, err error) {
	kubevirt, _, err = one(docs, KindKubeVirt, "kubevirt.io/")
	if kubevirt != nil {
		_, managed = managedBy(kubevirt)
	}
	return kubevirt, managed, err
}

// one returns the only live object of a kind, or nil when there is none. Among
// several, those that report a phase win: KubeVirt's operator deploys only one.
// passed names the others, and why they do not count.
func one(docs []manifest.Document, kind, group string) (found *manifest.Document, passed []string, err error) {
	var live []*manifest.Document
	for i := range docs {
		d := &docs[i]
		switch {
		case d.Kind() != kind:
			continue
		case !strings.HasPrefix(d.APIVersion(), group):
			passed = append(passed, fmt.Sprintf("%s (its apiVersion is %q)", d.Ref(), d.APIVersion()))
			continue
		case d.Meta("deletionTimestamp") != "":
			passed = append(passed, d.Ref()+" (it is being deleted)")
			continue
		}
		same := func(o *manifest.Document) bool { return reflect.DeepEqual(o.Object, d.Object) }
		if !slices.ContainsFunc(live, same) {
			live = append(live, d)
		}
	}
	if len(live) > 1 {
		deployed := slices.DeleteFunc(slices.Clone(live), func(d *manifest.Document) bool { return phase(d) == "" })
		if len(deployed) == 1 {
			for _, d := range live {
				if d != deployed[0] {
					passed = append(passed, d.Ref()+" (it is not deployed)")
				}
			}
		}
		if len(deployed) > 0 {
			live = deployed
		}
	}
	switch len(live) {
	case 0:
		return nil, passed, nil
	case 1:
		return live[0], passed, nil
	}
	var refs []string
	for _, d := range live {
		refs = append(refs, fmt.Sprintf("%s (%s:%d)", d.Ref(), d.File, d.Line))
	}
	slices.Sort(refs)
	return nil, nil, fmt.Errorf("find the %s: want exactly one, got %s; give only the one that is deployed", kind, strings.Join(refs, ", "))
}

func phase(d *manifest.Document) string {
	v, _ := manifest.Lookup(d.Object, manifest.Path{"status", "phase"})
	s, _ := v.(string)
	return s
}

// managedBy reports whether a HyperConverged writes the KubeVirt CR, and which.
func managedBy(d *manifest.Document) (owner string, ok bool) {
	refs, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "ownerReferences"})
	list, _ := refs.([]any)
	for _, r := range list {
		if ref, _ := r.(map[string]any); ref["kind"] == KindHyperConverged {
			name, _ := ref["name"].(string)
			return name, true
		}
	}
	by, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "labels", "app.kubernetes.io/managed-by"})
	return "of the cluster", by == "hco-operator"
}

// Identity names the target in gpuctl's JSON output.
type Identity struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"`
	Name       string `json:"name"`
}

// Identity returns what the target is called.
func (t *Target) Identity() Identity {
	return Identity{t.APIVersion(), t.Kind(), t.Meta("namespace"), t.Meta("name")}
}

// jsonText returns v as compact JSON; v is a record of gpuctl's own that always
// marshals.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("marshal own record: %v", err))
	}
	return string(data)
}
