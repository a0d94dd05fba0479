package diagnose

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// told is a refusal as it is told.
type told struct{ Object, Operator, Hint, Tenant string }

// toldBy returns what a refusal tells. Its hint is left out where want has none.
func toldBy(r *Refusal, want told) told {
	got := told{r.Object, r.Error(), r.Hint, r.ForTenant()}
	if want.Hint == "" {
		got.Hint = ""
	}
	return got
}

// fault is a refusal of a tenant for a fault of its parent, or of its own.
func fault(reason tenant.Reason, detail string) *tenant.Refusal {
	return &tenant.Refusal{Namespace: "acme-dev", Level: "acme", Fault: tenant.Fault{Reason: reason, Detail: detail}}
}

// shortage is 4 H200s more than acme, with 6 of 8 in use by acme-ops, leaves acme-dev.
func shortage(t *testing.T) error {
	t.Helper()
	tree := tenant.Build([]tenant.Namespace{
		{Name: "acme"},
		{Name: "acme-dev", Labels: map[string]string{tenant.ParentLabel: "acme"}},
		{Name: "acme-ops", Labels: map[string]string{tenant.ParentLabel: "acme"}},
	}, tenant.Labels([]tenant.Quota{{Namespace: "acme", Name: "gpus", Hard: map[string]string{"requests." + string(h200): "8"}}}, false),
		func(tenant.Namespace) bool { return true })
	use, _ := tree.Sum(map[string][]gpu.Amount{"acme-ops": {{Resource: h200, Units: 6}}})
	return use.Check("acme-dev", gpu.Amount{Resource: h200, Units: 4})
}

func TestRefused(t *testing.T) {
	const object = "GPUDevice acme-dev/train"
	_, tooMany := v1alpha1.DecodeReferences(v1alpha1.EncodeReferences(v1alpha1.References{Templates: make([]v1alpha1.Template, 65)}))
	asks := []alloc.Ask{{Resource: h200, Units: 4}}
	supply := []alloc.Supply{{Ask: asks[0], Nodes: 2, Largest: 8, Free: 5, Most: 3}}
	below := `namespace "acme-dev" is refused, as everything below "acme": `
	unknownParent := "which namespaces are above acme cannot be told; ask whoever administers it"
	unreadable := "the GPU budget of acme cannot be read; ask whoever administers it"
	h200s := "4 of nvidia.com/GH100_H200_SXM_141GB"
	served := "; nvidia.com/GH100_H200_SXM_141GB: 2 nodes serve it, 8 on one at most, 5 free together, 3 on one at most"
	for name, tc := range map[string]struct {
		err  error
		want told
	}{
		"no reason": {nil, told{Operator: "GPU0601: the request could not be judged, and so is refused: no reason was given", Tenant: "GPU0601: the request could not be judged; try again"}},
		"what nobody foresaw": {errors.Join(errors.New("read worker-7"), errors.New("EOF")), told{
			Operator: "GPU0601: the request could not be judged, and so is refused: read worker-7 EOF", Tenant: "GPU0601: the request could not be judged; try again",
		}},
		"a reason that has no code": {fault("Whim", "acme has 9"), told{
			Operator: "GPU0601: the request could not be judged, and so is refused: " + below + "acme has 9", Tenant: "GPU0601: the request could not be judged; try again",
		}},
		"a kind that has no code": {&alloc.Refusal{Kind: "Whim", Asks: asks}, told{
			Operator: "GPU0601: the request could not be judged, and so is refused: no node for " + h200s, Tenant: "GPU0601: the request could not be judged; try again",
		}},
		"no tenant": {fmt.Errorf("namespace %q: %w", "kube-system", tenant.ErrNotTenant), told{
			Operator: `GPU0602: no GPUs can be had outside of tenants' namespaces: namespace "kube-system": the namespace is no tenant`,
			Tenant:   "GPU0602: this namespace is no tenant's, and no GPUs can be had in it",
		}},
		"unknown namespace": {fault(tenant.UnknownNamespace, "x"), told{Operator: "GPU0603: gpuctl has not seen the namespace yet: " + below + "x", Tenant: "GPU0603: namespace acme-dev is not known yet; try again"}},
		"terminating": {fault(tenant.Terminating, "x"), told{
			Operator: "GPU0604: a namespace that is being deleted takes no order, nor does one below it: " + below + "x", Tenant: "GPU0604: namespace acme is being deleted",
			Hint: "order in another namespace, or wait until acme is gone and give those below it another parent",
		}},
		"cycle":            {fault(tenant.Cycle, "x"), told{Operator: "GPU0605: the way up from the namespace leads back to it: " + below + "x", Tenant: "GPU0605: " + unknownParent}},
		"missing parent":   {fault(tenant.MissingParent, "x"), told{Operator: "GPU0606: a namespace is named as parent and does not exist: " + below + "x", Tenant: "GPU0606: " + unknownParent}},
		"contradiction":    {fault(tenant.Contradiction, "x"), told{Operator: "GPU0607: it cannot be told which namespace is above: " + below + "x", Tenant: "GPU0607: " + unknownParent}},
		"unreadable tree":  {fault(tenant.TreeUnreadable, "x"), told{Operator: "GPU0608: what says which namespace is above cannot be read, or is not written yet: " + below + "x", Tenant: "GPU0608: " + unknownParent}},
		"no release":       {fault(tenant.NoRelease, "x"), told{Operator: "GPU0609: the HelmRelease that makes the tenant is not there: " + below + "x", Tenant: "GPU0609: " + unknownParent}},
		"unreadable limit": {fault(tenant.BudgetUnreadable, "x"), told{Operator: "GPU0610: a GPU budget cannot be read, and so allows nothing: " + below + "x", Tenant: "GPU0610: " + unreadable}},
		"negative limit":   {fault(tenant.BudgetNegative, "x"), told{Operator: "GPU0610: a GPU budget cannot be read, and so allows nothing: " + below + "x", Tenant: "GPU0610: " + unreadable}},
		"fraction":         {fault(tenant.BudgetFractional, "x"), told{Operator: "GPU0610: a GPU budget cannot be read, and so allows nothing: " + below + "x", Tenant: "GPU0610: " + unreadable}},
		"limit too large":  {fault(tenant.BudgetTooLarge, "x"), told{Operator: "GPU0610: a GPU budget cannot be read, and so allows nothing: " + below + "x", Tenant: "GPU0610: " + unreadable}},
		"budget used up": {shortage(t), told{
			Operator: `GPU0611: a budget does not allow it: namespace "acme-dev": acme has 2 too few of nvidia.com/GH100_H200_SXM_141GB (acme nvidia.com/GH100_H200_SXM_141GB: limit 8, in use 6, asked for 4)`,
			Tenant:   "GPU0611: the budget of acme does not allow 4 more of nvidia.com/GH100_H200_SXM_141GB; 2 left for acme-dev",
			Hint:     "raise the budget for nvidia.com/GH100_H200_SXM_141GB of acme (ResourceQuota acme/gpus), or let units be given back: kubectl get gpudevices -A",
		}},
		"no amount": {fault(tenant.InvalidAsk, `0 units of "h200" cannot be asked for`), told{
			Operator: "GPU0613: what is asked for is no amount of GPUs: " + below + `0 units of "h200" cannot be asked for`, Tenant: `GPU0613: 0 units of "h200" cannot be asked for`,
		}},
		"references": {BadReferences(object, tooMany), told{
			Operator: "GPU0630: read annotation gpuctl.dev/devices: it names 65 devices and templates; a VM can have 64",
			Tenant:   "GPU0630: read annotation gpuctl.dev/devices: it names 65 devices and templates; a VM can have 64",
		}},
		"no set": {&alloc.Refusal{Kind: alloc.Invalid}, told{Operator: "GPU0701: the devices of the VM are no set that can be placed: nothing cannot be asked for", Tenant: "GPU0701: nothing cannot be asked for"}},
		"served nowhere": {&alloc.Refusal{Kind: alloc.Unserved, Asks: asks, Supplies: []alloc.Supply{{Ask: asks[0]}}}, told{
			Operator: "GPU0702: no node serves what is asked for: no node for " + h200s + "; no node serves nvidia.com/GH100_H200_SXM_141GB", Tenant: "GPU0702: no node has nvidia.com/GH100_H200_SXM_141GB",
		}},
		"too large": {&alloc.Refusal{Kind: alloc.TooLarge, Asks: asks, Supplies: supply}, told{
			Operator: "GPU0703: no node serves as many units, even with nobody there: no node for " + h200s + served, Tenant: "GPU0703: no node is large enough for " + h200s + " together: ask for fewer",
		}},
		"constrained": {&alloc.Refusal{Kind: alloc.Constrained, Asks: asks, Supplies: supply, Verdicts: []alloc.Tally{{Verdict: "untolerated taint", Nodes: 2}}}, told{
			Operator: "GPU0704: nodes have the units free, and the VM can run on none of them: no node for " + h200s + " can run it" + served + "; 2 nodes with room: untolerated taint",
			Tenant:   "GPU0704: " + h200s + " are free, but the VM cannot run there: untolerated taint",
			Hint:     "change what keeps it away, such as node selector, tolerations, affinity, CPU and memory, or free units on a node that suits",
		}},
		"full": {&alloc.Refusal{Kind: alloc.Full, Asks: asks, Supplies: supply, Missing: &alloc.Missing{Node: "worker-7", Asks: []alloc.Ask{{Resource: h200, Units: 1}}}}, told{
			Operator: "GPU0705: the units are not free on one node: no node for " + h200s + served + "; worker-7 would do with 1 of nvidia.com/GH100_H200_SXM_141GB more",
			Tenant:   "GPU0705: no node has " + h200s + " free together now: 1 of nvidia.com/GH100_H200_SXM_141GB too few",
			Hint:     "it fits when enough units of one node are given back; gpuctl status -o wide shows who has them",
		}},
		"full, and the search given up": {&alloc.Refusal{Kind: alloc.Full, Asks: asks, Exhausted: true}, told{
			Operator: "GPU0705: the units are not free on one node: no node for " + h200s + "; reservations could perhaps be moved: not all ways were tried",
			Tenant:   "GPU0705: no node has " + h200s + " free together now",
			Hint: "it fits when enough units of one node are given back; gpuctl status -o wide shows who has them; perhaps reservations can be moved, but not all ways were tried: " +
				"an order that nobody needs makes room when it is deleted",
		}},
		"wrapped": {fmt.Errorf("place on worker-7: %w", fault(tenant.Cycle, "x")), told{
			Operator: "GPU0605: the way up from the namespace leads back to it: place on worker-7: " + below + "x", Tenant: "GPU0605: " + unknownParent,
		}},
		"a refusal, wrapped": {fmt.Errorf("look at worker-7: %w", NoClass(object, "h200")), told{Operator: "GPU0620: look at worker-7: GPU0620: there is no class h200", Tenant: "GPU0620: there is no class h200"}},
	} {
		t.Run(name, func(t *testing.T) {
			tc.want.Object = object
			r := Refused(tc.err, object)
			if diff := cmp.Diff(tc.want, toldBy(r, tc.want)); diff != "" {
				t.Errorf("Refused() (-want +got):\n%s", diff)
			}
			if tc.err != nil && !errors.Is(r, tc.err) {
				t.Error("the cause is lost")
			}
			complete(t, r)
		})
	}
}

// TestTold: what the binder has answered is told as it was, with the severity of its code.
func TestTold(t *testing.T) {
	for text, want := range map[string]told{
		"GPU0705: the units are not free": {"o", "GPU0705: the units are not free", "", "GPU0705: the units are not free"},
		"not free":                        {"o", "GPU0705: not free", "", "GPU0705: not free"},
	} {
		r := Told("o", "GPU0705", text)
		if diff := cmp.Diff(want, toldBy(r, want)); diff != "" || r.Severity != Warning {
			t.Errorf("%s, %s (-want +got):\n%s", text, r.Severity, diff)
		}
	}
	if r := Told("o", "GPU9999", "x"); r.Severity != Error {
		t.Errorf("a code that is not known is %s", r.Severity)
	}
}

// constructed are the refusals that have no error of another package, by their code.
func constructed() map[Code]*Refusal {
	const object = "VirtualMachineInstance acme-dev/trainer"
	out := map[Code]*Refusal{}
	for _, r := range []*Refusal{
		NotEntitled(object, "acme-dev", "a10-12q", "vgpu"),
		NoClass(object, "h200"),
		ClassDeleted(object, "h200"),
		ClassUnlicensed(object, "a10-12q", "nvidia.com/NVIDIA_A10-12Q"),
		CountTooLarge(object, "h200", 9, 8),
		ClassNotPermitted(object, "h200", string(h200)),
		ClassNotCounted(object, "h200", string(h200)),
		OrderOverloaded(object, "has the label gpuctl.dev/template-device, which is gpuctl's own"),
		BadReferences(object, errors.New("devices[1]: \"a\" is there twice")),
		ResourceNamed(object, string(h200)),
		NoDevice(object, "acme-dev", "train"),
		DeviceDeleted(object, "acme-dev", "train"),
		DeviceInUse(object, "acme-dev", "train", "other"),
		DeviceStarting(object, "acme-dev", "train", "other"),
		DeviceOfTemplate(object, "acme-dev", "train", "other"),
		VMIExists(object, "acme-dev", "trainer"),
		NamedBeside(object, "gpu1", string(h200)),
		ClaimsBeside(object, "claim"),
		NotItsSet(object, "it has 3 gpus, and its devices 4 units"),
		NoBinding(object, "GPUDevice train is not taken for the VMI"),
		ForeignLauncher(object, "alice"),
		MigrationTarget(object, "trainer"),
		NoMoreDevices(object, "acme-dev", "objects, requested: count/gpudevices.gpuctl.dev=1"),
		EndlessQuantity(object, "spec.domain.memory.guest", "1e100000000"),
		NoLeader(object, "the Lease of gpuctl-5d9 ran out 4711 s ago"),
		QueueTooLong(object, 4711, 600),
		NotAnswered(object, 3*time.Second),
		UnitsLost(object, "acme-dev", "train", "worker-7", string(h200)),
		LauncherTooLong(object, 20000, 16384),
		LauncherUnreadable(object, "unexpected end of JSON input"),
	} {
		out[r.Code] = r
	}
	return out
}

func TestRefusals(t *testing.T) {
	want := map[Code][2]string{
		"GPU0511": {"VirtualMachineInstance acme-dev/trainer names nvidia.com/GH100_H200_SXM_141GB under domain.resources as well: the key overrides the sum of the gpus entries, and the domain is short of devices"},
		"GPU0612": {"class a10-12q needs the entitlement vgpu, which acme-dev does not have"},
		"GPU0620": {"there is no class h200"},
		"GPU0621": {"class h200 is being deleted: nothing more can be ordered of it"},
		"GPU0622": {"class a10-12q is of vGPUs (nvidia.com/NVIDIA_A10-12Q) and names no entitlement: nobody may order it", "class a10-12q is not open for orders; ask whoever administers it"},
		"GPU0623": {"a device of class h200 may have 8 units at most, and 9 are asked for", "a device of class h200 may have 8 units at most, and 9 are asked for: order several, a VM may name all of them"},
		"GPU0624": {"class h200 gives nvidia.com/GH100_H200_SXM_141GB, which the host device table does not permit: no VM could use it", "no VM can use class h200 at present; ask whoever administers it"},
		"GPU0625": {"class h200 gives nvidia.com/GH100_H200_SXM_141GB, which is not among the resource names that count as GPUs", "class h200 cannot be ordered yet; try again"},
		"GPU0626": {"the order has the label gpuctl.dev/template-device, which is gpuctl's own"},
		"GPU0630": {`devices[1]: "a" is there twice`},
		"GPU0632": {"there is no GPUDevice train in namespace acme-dev"},
		"GPU0633": {"GPUDevice train is being deleted: no VM can start with it"},
		"GPU0634": {"GPUDevice train is in use by VMI other"},
		"GPU0635": {"GPUDevice train is taken for VMI other, which is starting"},
		"GPU0636": {"GPUDevice train was made from a template of VM other: no other VM can use it"},
		"GPU0637": {"there is a VMI trainer in namespace acme-dev already"},
		"GPU0638": {"gpu1 asks for nvidia.com/GH100_H200_SXM_141GB by its name, beside the devices that the VM references"},
		"GPU0639": {"claim is a resource claim, beside the devices that the VM references"},
		"GPU0644": {"the VM would not be stored with the devices that it has been given: it has 3 gpus, and its devices 4 units"},
		"GPU0645": {"the launcher cannot run yet: GPUDevice train is not taken for the VMI"},
		"GPU0646": {"alice makes a pod that looks like a VM's launcher, and is not KubeVirt", "only KubeVirt makes launchers of VMs: take the labels kubevirt.io and gpuctl.dev/device-reference off the pod"},
		"GPU0647": {"VMI trainer has GPUs: it cannot move to another node while it runs"},
		"GPU0648": {"a ResourceQuota of namespace acme-dev allows no other GPUDevice for the VM: objects, requested: count/gpudevices.gpuctl.dev=1"},
		"GPU0649": {"spec.domain.memory.guest is 1e100000000, and nobody can reckon with that"},
		"GPU0710": {"no replica of the controller leads, so no VM with devices can start: the Lease of gpuctl-5d9 ran out 4711 s ago", "GPUs cannot be placed at the moment; try again in a minute"},
		"GPU0711": {"4711 devices wait for the binder's answer, and it gives 600 in the time that a start waits", "too many VMs start at once; try again in a moment"},
		"GPU0712": {"the binder did not answer within 3s; what the start had taken is given back", "no place for the VM was found in time; try again in a moment"},
		"GPU0713": {"node worker-7 serves the units of GPUDevice train (nvidia.com/GH100_H200_SXM_141GB) no more", "the units of GPUDevice train are gone; the VM can start when they are back or replaced"},
		"GPU0715": {"what the VM asks of a node comes to 20000 bytes, and a bind request takes 16384", "the VM asks too much of a node: 20000 bytes, and 16384 at most; fewer terms of node affinity, fewer tolerations or a pod anti-affinity to fewer pods will do"},
		"GPU0716": {"the bind request does not say what the launcher needs of a node: unexpected end of JSON input", "what the VM asks of a node cannot be read; try again in a moment"},
	}
	got := map[Code][2]string{}
	for code, r := range constructed() {
		complete(t, r)
		if Refused(r, "another") != r {
			t.Errorf("%s: Refused() returns another", code)
		}
		got[code] = [2]string{r.Message, r.Tenant}
		if r.Tenant == r.Message {
			got[code] = [2]string{r.Message}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("message, and the tenant's where it differs (-want +got):\n%s", diff)
	}
}

// complete checks what holds for every refusal.
func complete(t *testing.T, r *Refusal) {
	t.Helper()
	if e, ok := Lookup(string(r.Code)); !ok || r.Severity != e.Severity || r.Hint == "" || r.Tenant == "" {
		t.Errorf("it is not complete: %+v", r)
	}
	for _, text := range []string{r.Message, r.Hint, r.Tenant} {
		if strings.ContainsAny(text, "{}\n") {
			t.Errorf("a placeholder or a line break is left in %q", text)
		}
	}
	if n := utf8.RuneCountInString(r.Tenant); n > MaxTenantText {
		t.Errorf("the tenant's text has %d characters", n)
	}
}

func TestTenantTextIsBounded(t *testing.T) {
	r := BadReferences("VM a/b", errors.New(strings.Repeat("ä", 5000)))
	complete(t, r)
	if want := strings.Repeat("ä", MaxTenantText-1) + "…"; r.Tenant != want {
		t.Errorf("the tenant's text is %q", r.Tenant)
	}
	if !strings.Contains(r.Message, strings.Repeat("ä", 5000)) {
		t.Error("the operator's text is cut")
	}
}

// What keeps a launcher away from its devices is named, a few of each.
func TestKeptBy(t *testing.T) {
	for name, tc := range map[string]struct {
		claims, devices []string
		want            string
	}{
		"one of each":    {[]string{"disk"}, []string{"a"}, "what PersistentVolumeClaim disk is bound to keeps it to nodes where GPUDevice a cannot be had"},
		"only templates": {[]string{"disk"}, nil, "what PersistentVolumeClaim disk is bound to keeps it to nodes where its devices cannot be had"},
		"many": {
			[]string{"d1", "d2", "d3"},
			[]string{"a", "b", "c", "d", "e"},
			"what PersistentVolumeClaim d1, d2, d3 is bound to keeps it to nodes where GPUDevice a, b, c and 2 more cannot be had",
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := Told("VM a/b", "GPU0704", "GPU0704: 1 is free")
			if !r.Unsuited() {
				t.Error("it is not said to be unsuited")
			}
			kept := r.KeptBy(tc.claims, tc.devices)
			if want := "GPU0704: 1 is free; " + tc.want; kept.ForTenant() != want || kept.Error() != want {
				t.Errorf("it says %q and %q, want %q", kept.ForTenant(), kept.Error(), want)
			}
			if r.ForTenant() != "GPU0704: 1 is free" {
				t.Errorf("the refusal itself says %q now", r.ForTenant())
			}
			long := Told("VM a/b", "GPU0704", strings.Repeat("ä", MaxTenantText)).KeptBy(tc.claims, tc.devices)
			if n := utf8.RuneCountInString(long.Tenant); n > MaxTenantText {
				t.Errorf("a long text has %d characters then", n)
			}
		})
	}
}

// TestEveryReasonHasACode reads the sources: a reason or a kind that is added there has
// no code until somebody gives it one.
func TestEveryReasonHasACode(t *testing.T) {
	reasons, kinds := constants(t, "../tenant", "Reason"), constants(t, "../alloc", "Kind")
	if len(reasons) < 12 || len(kinds) < 5 {
		t.Fatalf("found the reasons %q and the kinds %q", reasons, kinds)
	}
	for _, r := range reasons {
		if c := Refused(fault(tenant.Reason(r), ""), "").Code; c == "GPU0601" || !strings.HasPrefix(string(c), "GPU06") {
			t.Errorf("reason %s has %s", r, c)
		}
	}
	seen := map[Code]string{}
	for _, k := range kinds {
		c := Refused(&alloc.Refusal{Kind: alloc.Kind(k)}, "").Code
		if !strings.HasPrefix(string(c), "GPU07") || seen[c] != "" {
			t.Errorf("kind %s has %s, as has %q", k, c, seen[c])
		}
		seen[c] = k
	}
}

// constants returns the values of a package's string constants of the type.
func constants(t *testing.T, dir, typeName string) (values []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok {
				return true
			}
			if name, ok := spec.Type.(*ast.Ident); !ok || name.Name != typeName {
				return true
			}
			for _, v := range spec.Values {
				if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					text, err := strconv.Unquote(lit.Value)
					if err != nil {
						t.Fatal(err)
					}
					values = append(values, text)
				}
			}
			return true
		})
	}
	return values
}
