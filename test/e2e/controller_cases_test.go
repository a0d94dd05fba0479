package e2e

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/discover"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// fieldCases are the situations from the field that the command has tests for.
const fieldCases = "../../internal/cli/testdata/cases"

const (
	// resync is the shortest that the controller takes: it looks again while nothing
	// happens.
	resync = time.Second
	// quiet is for how long nothing may be written after looks that were provoked.
	quiet = 200 * time.Millisecond
	// stale is after which time an own entry that nobody serves may go.
	stale = 100 * time.Millisecond
)

// replay is one controller on which cases are replayed, one after the other.
type replay struct {
	*stage
	agents      *cluster.Client
	labels      map[string]string // the KubeVirt CR's own
	annotations map[string]string
	token       string // who may read the metrics
	target      *unstructured.Unstructured
	reverts     int // that the controller should have counted
}

// Cases from the field in which a controller has something to decide, and what may come
// upon it besides. It is one controller for all: what a case leaves behind in it must
// not matter to the next.
func TestCasesAgainstTheController(t *testing.T) {
	r := &replay{stage: newStage(t)}
	var err error
	if r.agents, err = cluster.Connect(cluster.Options{Kubeconfig: r.Kubeconfig(), Manager: "gpuctl-agent"}); err != nil {
		t.Fatal(err)
	}
	r.token = r.ServiceAccount("default", "prometheus", rbacv1.PolicyRule{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}).BearerToken
	kv := kubeVirt(t, r.Cluster)
	r.labels, r.annotations = kv.GetLabels(), kv.GetAnnotations()
	installCRD(t, r.Cluster, "testdata/hyperconverged-v1beta1.yaml")
	t.Cleanup(func() { r.put(func(*unstructured.Unstructured) {}) })
	r.installController("controller.resync="+resync.String(), "controller.staleAfter="+stale.String())
	for name, tc := range replayed() {
		t.Run(name, func(t *testing.T) { r.in(t).replayCase(tc) })
	}
	for name, tc := range situations() {
		t.Run(name, func(t *testing.T) { r.in(t).meet(&tc) })
	}
}

// in makes a subtest fail, and clean up, by itself.
func (r *replay) in(t *testing.T) *replay {
	t.Helper()
	s := *r.stage
	s.Cluster, s.t = shared.For(t), t
	here := *r
	here.stage = &s
	return &here
}

// put replaces the KubeVirt CR but for its status, and returns what was stored: fields
// in the wrong place are pruned.
func (r *replay) put(change func(*unstructured.Unstructured)) (stored *unstructured.Unstructured) {
	r.t.Helper()
	ref := r.Resource(kubeVirtRef(r.Cluster))
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		kv, err := ref.Get(context.Background(), "kubevirt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		kv.SetLabels(r.labels)
		kv.SetAnnotations(r.annotations)
		kv.SetOwnerReferences(nil)
		change(kv)
		stored, err = ref.Update(context.Background(), kv, metav1.UpdateOptions{FieldManager: "case"})
		return err
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return stored
}

// spec returns a change to a spec.
func spec(v any) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) { u.Object["spec"] = v }
}

// specOf returns a change to a spec in YAML.
func (r *replay) specOf(text string) func(*unstructured.Unstructured) {
	return spec(r.Decode("apiVersion: v1\nkind: Any\nspec: " + text).Object["spec"])
}

// reset brings the controller to rest at a KubeVirt CR that lacks nothing and that it
// has not written, so that it takes the next one for no revert; then it holds it back,
// so that a case begins with its nodes in place.
func (r *replay) reset() {
	r.t.Helper()
	const held = "{configuration: {developerConfiguration: {disabledFeatureGates: [HostDevices]}}}"
	hold := func() {
		r.put(r.specOf(held))
		r.Eventually(repair, "the controller is held back", r.says(v1alpha1.ConditionWired, v1alpha1.ReasonRefused, "GPU0314"))
	}
	hold()
	r.put(r.specOf("{configuration: {developerConfiguration: {featureGates: [HostDevices]}}}"))
	r.Eventually(repair, "the controller is at rest", r.says(v1alpha1.ConditionWired, v1alpha1.ReasonWired))
	hold()
	r.reverts = len(r.counted())
}

// host reports what a node's agent sees.
func (r *replay) host(node string, h *gpu.Host) {
	r.t.Helper()
	spec := cluster.InventoryOf(h, "v0.0.0", nil)
	if _, err := r.agents.ReportGPUNode(r.t.Context(), node, &spec); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		deleteAnyway(r.t, r.Cluster, r.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUNode, metadata: {name: "+node+"}}"))
	})
}

// manage makes a HyperConverged that owns the KubeVirt CR, and returns it as it was
// before the controller saw it.
func (r *replay) manage(hco, kubevirt any) (made *unstructured.Unstructured) {
	r.t.Helper()
	u := r.Decode("{apiVersion: hco.kubevirt.io/v1beta1, kind: HyperConverged, metadata: {name: kubevirt-hyperconverged, namespace: kubevirt}}")
	u.Object["spec"] = hco
	made = r.Create(u)
	r.t.Cleanup(func() {
		r.put(func(*unstructured.Unstructured) {}) // or the garbage collector takes KubeVirt away, too
		deleteAnyway(r.t, r.Cluster, made)
	})
	r.put(func(kv *unstructured.Unstructured) {
		spec(kubevirt)(kv)
		kv.SetLabels(map[string]string{"app.kubernetes.io/managed-by": "hco-operator"})
		kv.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: made.GetAPIVersion(), Kind: made.GetKind(), Name: made.GetName(), UID: made.GetUID()}})
	})
	return made
}

// fieldCase is a case, and what its checks.yaml leaves open.
type fieldCase struct {
	slug   string
	reason string   // of the condition, where it is neither Wired nor Refused
	words  []string // of its message
	pruned bool     // the CRD does not let all of the object through
}

// replayed are the cases. Of those with VMs the VMs are left out: none of these plans
// depends on them.
func replayed() map[string]fieldCase {
	return map[string]fieldCase{
		"a sibling list and a blank in a name":       {slug: "05-pcihostdevices-sibling-and-space-in-name", pruned: true, reason: v1alpha1.ReasonIncomplete, words: []string{"nvidia.com/GRID_P4-1Q"}},
		"an Intel wildcard":                          {slug: "08-intel-wildcard-selector"},
		"NIC and USB entries":                        {slug: "10-nic-and-usb-entries"},
		"null lists":                                 {slug: "12-null-device-lists", pruned: true},
		"exact duplicates":                           {slug: "14-harvester-many-exact-duplicates"},
		"a selector in lower case":                   {slug: "15-lowercase-selector-already-present"},
		"HyperConverged owns the KubeVirt CR":        {slug: "16-hco-owned-kubevirt-cr", pruned: true},
		"HyperConverged has the entry disabled":      {slug: "18-hco-enforced-defaults-disabled-flag", words: []string{"GPU0317", "10DE:1EB8", "TU104GL_Tesla_T4"}},
		"Cozystack's KubeVirt CR":                    {slug: "20-cozystack-default-cr"},
		"hand-edited names and a static table":       {slug: "21-hand-edited-names-vs-static-table"},
		"virtual functions with their card's id":     {slug: "23-sriov-vgpu-vf-same-id-as-pf"},
		"KubeVirt serves half of the cards":          {slug: "24-in-tree-provider-half-the-cards"},
		"two ids of one name":                        {slug: "25-two-device-ids-one-plugin-name"},
		"vGPUs only, and types in the wrong place":   {slug: "28-mdev-only-with-misplaced-node-types", pruned: true},
		"gates as HyperConverged spells them":        {slug: "30-gate-casing-borrowed-from-hco"},
		"NVMe and NIC entries":                       {slug: "32-nvme-and-nic-entries-with-shared-vendor-prefix"},
		"a GPU named after a RAID controller":        {slug: "33-rtx2060-named-as-raid-controller"},
		"a bare id, then a name":                     {slug: "35-hex-name-then-real-name-second-card-missing"},
		"cards without a driver":                     {slug: "46-v100-pairs-no-driver"},
		"virtual functions that look like GPUs":      {slug: "47-a5000-virtual-functions-look-like-gpus"},
		"a driver of the host":                       {slug: "50-host-driver-preinstalled"},
		"a profile in another case":                  {slug: "55-vgpu-profile-case-mismatch", reason: v1alpha1.ReasonIncomplete, words: []string{"nvidia.com/NVIDIA_RTX5000-Ada-8Q"}},
		"a name of two ids, and one without a slash": {slug: "65-hypershift-nodepool-host-devices"},
		"labelled for vGPUs, and no mediated device": {slug: "70-label-says-vgpu-hardware-says-no-mdev"},
	}
}

// caseFiles is what a case's run of wire is given.
type caseFiles struct {
	check         caseCheck
	kubevirt, hco any // specs
	nodes         []testcluster.Node
	hosts         map[string]*discover.Pasted // by node; "" is the only one
}

// caseCheck is what checks.yaml says of a run of wire, as far as an object shows it.
type caseCheck struct {
	BareCR          bool     `json:"bare_cr"`
	Args            []string `json:"args"`
	Exit            int      `json:"exit"`
	Present, Absent []entryLike
	Added           *int   `json:"added"`
	Gate            string `json:"gate"`
	Unchanged       bool   `json:"unchanged"`
}

// entryLike matches entries by the fields it has; external is true, false, "absent", or
// nil for any.
type entryLike struct {
	Selector     string `json:"selector"`
	ResourceName string `json:"resourceName"`
	External     any    `json:"external"`
}

func (e entryLike) matches(item any) bool {
	m := item.(map[string]any)
	external, has := m["externalResourceProvider"]
	return (e.Selector == "" || strings.EqualFold(selectorOf(m), e.Selector)) &&
		(e.ResourceName == "" || m["resourceName"] == e.ResourceName) &&
		(e.External == nil || e.External == "absent" && !has || has && e.External == external)
}

func selectorOf(entry map[string]any) string {
	for _, key := range []string{"pciVendorSelector", "pciDeviceSelector", "mdevNameSelector"} {
		if s, ok := entry[key].(string); ok {
			return s
		}
	}
	return ""
}

// readCase reads the files of a case's first run of wire.
func (r *replay) readCase(slug string) (files caseFiles) {
	r.t.Helper()
	read := func(name string) []byte {
		data, err := os.ReadFile(filepath.Join(fieldCases, slug, name))
		if err != nil {
			r.t.Fatal(err)
		}
		return data
	}
	var checks struct{ Wire caseCheck }
	if err := yaml.Unmarshal(read("checks.yaml"), &checks); err != nil {
		r.t.Fatal(err)
	}
	files.check, files.hosts = checks.Wire, map[string]*discover.Pasted{}
	files.kubevirt = map[string]any{"configuration": map[string]any{}} // bare_cr, or HyperConverged's alone
	for i := 0; i+1 < len(files.check.Args); i += 2 {
		option, value := files.check.Args[i], files.check.Args[i+1]
		node, name, tied := strings.Cut(value, "=")
		if !tied {
			node, name = "", value
		}
		if option == "-f" {
			if text := read(name); strings.Contains(string(text), "kind:") {
				r.readObject(&files, text)
			}
			continue
		}
		if files.hosts[node] == nil {
			files.hosts[node] = &discover.Pasted{}
		}
		to := map[string]*discover.File{"--lspci": &files.hosts[node].Lspci, "--iommu": &files.hosts[node].IOMMU, "--vf": &files.hosts[node].VF}[option]
		*to = discover.File{Name: name, Data: read(name)}
	}
	return files
}

func (r *replay) readObject(files *caseFiles, text []byte) {
	r.t.Helper()
	u := r.Decode(string(text))
	switch u.GetKind() {
	case patch.KindKubeVirt:
		files.kubevirt = u.Object["spec"]
	case patch.KindHyperConverged:
		files.hco = u.Object["spec"]
	case "Node":
		n := testcluster.Node{Name: u.GetName(), Labels: map[string]string{}, Resources: map[corev1.ResourceName]int64{}}
		for key, value := range u.GetLabels() {
			if strings.HasPrefix(key, "nvidia.com/") {
				n.Labels[key] = value
			}
		}
		amounts, _, _ := unstructured.NestedStringMap(u.Object, "status", "allocatable")
		for name, amount := range amounts {
			if strings.Contains(name, "/") {
				q := resource.MustParse(amount)
				n.Resources[corev1.ResourceName(name)] = q.Value()
			}
		}
		files.nodes = append(files.nodes, n)
	}
}

// replayCase replays a case of internal/cli.
func (r *replay) replayCase(tc fieldCase) {
	r.t.Helper()
	files := r.readCase(tc.slug)
	r.reset()
	for _, n := range files.nodes {
		r.AddNode(n)
	}
	for node, pasted := range files.hosts {
		h, _, err := discover.FromText(*pasted)
		if err != nil {
			r.t.Fatal(err)
		}
		r.host(cmp.Or(node, files.nodes[0].Name), &h)
	}
	given, target := files.kubevirt, kubeVirtRef(r.Cluster)
	var before *unstructured.Unstructured
	if files.hco == nil {
		before = r.put(spec(given))
	} else {
		given = files.hco
		before = r.manage(files.hco, files.kubevirt)
		target = before
	}
	if diff := gocmp.Diff(given, before.Object["spec"]); (diff != "") != tc.pruned {
		r.t.Errorf("of what is given the API server keeps (-given +kept):\n%s", diff)
	}
	managed := kubeVirt(r.t, r.Cluster)

	reason := cmp.Or(tc.reason, v1alpha1.ReasonWired)
	if files.check.Exit != 0 {
		reason = v1alpha1.ReasonRefused
	}
	var after *unstructured.Unstructured
	r.Eventually(repair, "it is as the case wants it", func(ctx context.Context) (err error) {
		if after, err = r.Resource(target).Get(ctx, before.GetName(), metav1.GetOptions{}); err != nil {
			return err
		}
		return cmp.Or(r.says(v1alpha1.ConditionWired, reason, tc.words...)(ctx), files.check.of(before, after))
	})
	r.rests(after)
	if files.hco != nil {
		r.rests(managed) // the operator's alone
	}
}

// rests fails the test when an object changes although the controller is made to look,
// or when somebody is blamed for what nobody did.
func (r *replay) rests(as *unstructured.Unstructured) {
	r.t.Helper()
	for range 2 { // the first may have begun before
		r.look()
	}
	r.Always(quiet, "nothing more is written", func(ctx context.Context) error {
		now, err := r.Resource(as).Get(ctx, as.GetName(), metav1.GetOptions{})
		if err == nil && now.GetGeneration() != as.GetGeneration() {
			return errorf("%s (-was +is):\n%s", as.GetKind(), gocmp.Diff(as.Object["spec"], now.Object["spec"]))
		}
		return err
	})
	if got := r.counted(); len(got) != r.reverts {
		r.t.Errorf("%d reverts are counted, want %d: %+v", len(got), r.reverts, got)
	}
}

// counted returns the reverts that the controller has counted.
func (r *replay) counted() []v1alpha1.Revert {
	r.t.Helper()
	w, err := r.wiring(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return w.Status.Reverts
}

// look makes the controller look again, and waits until it has looked.
func (r *replay) look() {
	r.t.Helper()
	before := r.metric(looks)
	label := fmt.Sprintf(`{"metadata":{"labels":{"nvidia.com/looked-at":"%d"}}}`, time.Now().UnixNano())
	if _, err := r.Clientset().CoreV1().Nodes().Patch(r.t.Context(), "untainted", types.MergePatchType, []byte(label), metav1.PatchOptions{}); err != nil {
		r.t.Fatal(err)
	}
	r.Eventually(repair, "the controller looks", func(context.Context) error {
		if now := r.metric(looks); now <= before {
			return errorf("%d looks, as before", now)
		}
		return nil
	})
}

const (
	looks  = `controller_runtime_reconcile_total{controller="wiring"`
	writes = "gpuctl_wiring_writes_total"
)

// metric returns the sum of what the leader counts under a name and some labels.
func (r *replay) metric(name string) (sum int) {
	r.t.Helper()
	pod, _ := r.leader()
	code, body, err := get(r.t.Context(), "https://"+pod.Status.PodIP+":8443/metrics", r.token)
	if err != nil || code != http.StatusOK {
		r.t.Fatalf("answer %d, %v: %s", code, err, body)
	}
	for line := range strings.Lines(body) {
		if fields := strings.Fields(line); strings.HasPrefix(line, name) {
			n, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				r.t.Fatal(err)
			}
			sum += n
		}
	}
	return sum
}

// of returns how an object does not follow from what it was as the case wants it.
func (c *caseCheck) of(before, after *unstructured.Unstructured) error {
	path := []string{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
	if after.GetKind() == patch.KindHyperConverged {
		path = []string{"spec", "permittedHostDevices", "pciHostDevices"}
	}
	had, _, _ := unstructured.NestedSlice(before.Object, path...)
	have, _, _ := unstructured.NestedSlice(after.Object, path...)
	if len(have) < len(had) {
		return errorf("entries are gone: %v", have)
	}
	gatesPath := []string{"spec", "configuration", "developerConfiguration", "featureGates"}
	hadGates, _, _ := unstructured.NestedSlice(before.Object, gatesPath...)
	gates, _, _ := unstructured.NestedSlice(after.Object, gatesPath...)

	// What may be added, at the end of what was there, and nothing else.
	want := before.DeepCopy()
	added := have[len(had):]
	if len(added) > 0 {
		_ = unstructured.SetNestedSlice(want.Object, append(had, added...), path...)
	}
	gateAdded := c.Gate == "present" && !slices.Contains(hadGates, any("HostDevices"))
	if gateAdded {
		_ = unstructured.SetNestedSlice(want.Object, append(hadGates, "HostDevices"), gatesPath...)
	}
	writes := int64(0)
	if len(added) > 0 || gateAdded {
		writes = 1
	}
	switch diff := gocmp.Diff(want.Object["spec"], after.Object["spec"]); {
	case diff != "":
		return errorf("besides entries (-want +got):\n%s", diff)
	case after.GetGeneration()-before.GetGeneration() != writes:
		return errorf("it was written %d times, want %d", after.GetGeneration()-before.GetGeneration(), writes)
	case c.Added != nil && len(added) != *c.Added, (c.Unchanged || c.Exit != 0) && len(added) > 0:
		return errorf("added are %v", added)
	case c.Gate == "absent" && slices.Contains(gates, any("HostDevices")):
		return errorf("the gates are %v", gates)
	}
	for _, e := range c.Present {
		if !slices.ContainsFunc(have, e.matches) {
			return errorf("there is no %+v among %v", e, have)
		}
	}
	for _, e := range c.Absent {
		if slices.ContainsFunc(have, e.matches) {
			return errorf("there is %+v among %v", e, have)
		}
	}
	return nil
}
