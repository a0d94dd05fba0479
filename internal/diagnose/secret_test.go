package diagnose

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// What no tenant may read: the name of a node, a namespace that is neither theirs nor
// above them, and a number that is not about themselves.
var secrets = regexp.MustCompile(`secret|\d{4}`)

// secretNumber is how much others have, or may have.
func secretNumber() *rapid.Generator[int64] { return rapid.Int64Range(1000, 9999) }

// secretCheck is a refusal of tenant acme-dev by a real tree, in which others below
// acme have much, and may have more. Its budget and its place can be read if sound.
func secretCheck(t *rapid.T, sound bool) error {
	key := rapid.SampledFrom([]string{"requests." + string(a10), "class.gpuctl.dev/a10", "gpuctl.dev/gpus"}).Draw(t, "key")
	text := rapid.SampledFrom([]string{"-9999", "9999.5", "9e9999", "secret 9999"}).Draw(t, "text")
	used := secretNumber().Draw(t, "used")
	ask := rapid.Int64Range(1, 64).Draw(t, "ask")
	limit := used + rapid.Int64Range(0, ask-1).Draw(t, "left")
	parent := rapid.SampledFrom([]string{"acme", "missing", "acme-dev", ""}).Draw(t, "parent")
	terminating := rapid.Bool().Draw(t, "terminating")
	if sound {
		text, parent, terminating = fmt.Sprint(limit), "acme", false
	}
	names := []tenant.Namespace{
		{Name: "acme", Terminating: terminating},
		{Name: "acme-dev", Labels: map[string]string{tenant.ParentLabel: parent}},
		{Name: "secret-sibling", Labels: map[string]string{tenant.ParentLabel: "acme"}},
	}
	tree := tenant.Build(names, tenant.Labels([]tenant.Quota{{Namespace: "acme", Name: "secret-quota", Hard: map[string]string{key: text}}}, false),
		func(ns tenant.Namespace) bool { return ns.Name != "acme" })
	use, _ := tree.Sum(map[string][]gpu.Amount{"secret-sibling": {{Resource: a10, Class: "a10", Units: used}}})
	return use.Check("acme-dev", gpu.Amount{Resource: a10, Class: "a10", Units: ask})
}

// secretFault is any fault of a level above; that of an ask is about the tenant's own.
func secretFault(t *rapid.T, reason string) error {
	r := &tenant.Refusal{Namespace: "acme-dev", Level: rapid.SampledFrom([]string{"acme", "acme-dev"}).Draw(t, "level")}
	r.Reason = tenant.Reason(reason)
	r.Detail = fmt.Sprintf("secret-sibling has %d", secretNumber().Draw(t, "detail"))
	if r.Reason == tenant.InvalidAsk {
		r.Detail = "0 units of nvidia.com/GA102GL_A10 cannot be asked for"
	}
	return r
}

// secretPlacement is any refusal of a placement.
func secretPlacement(t *rapid.T, kind string) error {
	r := &alloc.Refusal{Kind: alloc.Kind(kind), Exhausted: rapid.Bool().Draw(t, "exhausted")}
	for _, name := range []gpu.ResourceName{a10, "nvidia.com/L40S"}[:rapid.IntRange(1, 2).Draw(t, "asks")] {
		ask := alloc.Ask{Resource: name, Units: rapid.Int64Range(1, 64).Draw(t, "units")}
		r.Asks = append(r.Asks, ask)
		s := alloc.Supply{
			Ask: ask, Nodes: int(secretNumber().Draw(t, "nodes")), Closed: int(secretNumber().Draw(t, "closed")), Largest: secretNumber().Draw(t, "largest"),
			Free: secretNumber().Draw(t, "free"), Most: secretNumber().Draw(t, "most"), Enough: int(secretNumber().Draw(t, "enough")),
		}
		if rapid.Bool().Draw(t, "unserved") {
			s = alloc.Supply{Ask: ask}
		}
		r.Supplies = append(r.Supplies, s)
	}
	if r.Kind == alloc.Constrained {
		r.Verdicts = []alloc.Tally{{Verdict: "untolerated taint", Nodes: int(secretNumber().Draw(t, "refused"))}}
	}
	if r.Kind != alloc.Invalid && rapid.Bool().Draw(t, "stuck") {
		r.Stuck = []alloc.Stuck{{Node: "secret-node", Verdict: "untolerated taint"}}
	}
	if r.Kind != alloc.Invalid && rapid.Bool().Draw(t, "missing") {
		r.Missing = &alloc.Missing{Node: "secret-node", Asks: []alloc.Ask{{Resource: a10, Units: 1}}}
	}
	return r
}

// secretConstructed are the refusals that are given what no tenant may read.
func secretConstructed(t *rapid.T) []error {
	n := secretNumber().Draw(t, "number")
	return []error{
		NoLeader("vm/acme-dev/x", fmt.Sprintf("the Lease of secret-node ran out %d s ago", n)),
		QueueTooLong("vm/acme-dev/x", int(n), int(n)),
		NotAnswered("vm/acme-dev/x", time.Duration(n)*time.Second),
		UnitsLost("vm/acme-dev/x", "acme-dev", "train", "secret-node", string(a10)),
		LauncherUnreadable("vm/acme-dev/x", fmt.Sprintf("secret-node: %d", n)),
		errors.New("read secret-node: " + fmt.Sprint(n)),
		fmt.Errorf("secret-sibling: %w", tenant.ErrNotTenant),
	}
}

// TestTenantReadsNoSecrets makes refusals of everything that is known when one is made,
// wrapped or not, and looks for what belongs to others. "Whim" has no code.
func TestTenantReadsNoSecrets(t *testing.T) {
	reasons := append(constants(t, "../tenant", "Reason"), "Whim")
	kinds := append(constants(t, "../alloc", "Kind"), "Whim")
	kept := map[Code]bool{} // secrets are in the operator's text
	rapid.Check(t, func(t *rapid.T) {
		errs := append(secretConstructed(t), secretCheck(t, true), secretCheck(t, false))
		for _, reason := range reasons {
			errs = append(errs, secretFault(t, reason))
		}
		for _, kind := range kinds {
			errs = append(errs, secretPlacement(t, kind))
		}
		for _, err := range errs {
			r := keepsSecrets(t, err)
			kept[r.Code] = kept[r.Code] || secrets.MatchString(r.Message)
		}
	})
	for _, code := range []Code{"GPU0601", "GPU0605", "GPU0610", "GPU0611", "GPU0704", "GPU0705", "GPU0711", "GPU0713", "GPU0716"} {
		if !kept[code] {
			t.Errorf("no %s with a secret came up", code)
		}
	}
}

// keepsSecrets looks at what is told of one error.
func keepsSecrets(t *rapid.T, err error) *Refusal {
	for range rapid.IntRange(0, 2).Draw(t, "wrapped") {
		err = fmt.Errorf("look at secret-node: %w", err)
	}
	r := Refused(err, "GPUDevice acme-dev/train")
	if found := secrets.FindString(strings.TrimPrefix(r.ForTenant(), string(r.Code))); found != "" {
		t.Fatalf("the tenant reads %q in: %s", found, r.ForTenant())
	}
	own := oneLine(err.Error())
	if known := (*Refusal)(nil); !errors.As(err, &known) && !strings.Contains(r.Message, own) {
		t.Fatalf("the operator does not read %q in: %s", own, r.Message)
	}
	return r
}

// TestTenantTextsTakeNoSecrets looks at what the catalogue lets into a text for tenants.
func TestTenantTextsTakeNoSecrets(t *testing.T) {
	allowed := []string{"text", "namespace", "class", "entitlement", "count", "most", "device", "vmi", "vm", "name"}
	findings := []Code{"GPU0640", "GPU0641", "GPU0642", "GPU0643", "GPU0714"} // nothing is refused for them
	for _, e := range Catalog() {
		area, _ := e.Code.Area()
		if slices.Contains(findings, e.Code) {
			if e.Tenant != "" {
				t.Errorf("%s has a text for tenants and is no refusal", e.Code)
			}
			continue
		}
		if area.Digits != "06" && area.Digits != "07" {
			if e.Tenant != "" {
				t.Errorf("%s has a text for tenants and is no refusal", e.Code)
			}
			continue
		}
		text := e.Tenant
		if text == "" {
			text = e.Message
		}
		for _, m := range regexp.MustCompile(`\{(\w+)\}`).FindAllStringSubmatch(text, -1) {
			if !slices.Contains(allowed, m[1]) {
				t.Errorf("%s lets {%s} into a tenant's text", e.Code, m[1])
			}
		}
	}
}
