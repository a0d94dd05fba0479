// Package fleet makes the nodes of a large cluster, as objects: with their
// inventories, their agents' Leases, and a table in the KubeVirt CR that permits all
// that they serve.
package fleet

import (
	"context"
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

//go:embed objects
var objects embed.FS

// Namespace is that of gpuctl.
const Namespace = "gpu-system"

// AgentLabels are the labels of what belongs to agents, as YAML.
const AgentLabels = "{" + v1alpha1.LabelPartOf + ": " + v1alpha1.PartOf + ", " + v1alpha1.LabelComponent + ": " + v1alpha1.ComponentAgent + "}"

// Fleet makes nodes of one size.
type Fleet struct {
	gpus      int
	client    dynamic.Interface
	templates *template.Template
	now       string
}

// New returns a maker of nodes with a number of GPUs each.
func New(client dynamic.Interface, gpus int) (*Fleet, error) {
	templates, err := template.ParseFS(objects, "objects/*")
	if err != nil {
		return nil, err
	}
	return &Fleet{gpus: gpus, client: client, templates: templates, now: Now()}, nil
}

// Now returns the time as Leases have it.
func Now() string { return time.Now().UTC().Format("2006-01-02T15:04:05.000000Z") }

// NodeName returns the name of a node.
func NodeName(i int) string { return fmt.Sprintf("gpu-node-%04d", i) }

// CardOf returns the kind of GPU that a node has.
func CardOf(node int) gpu.DeviceID { return cards()[node%len(cards())] }

// cards are the GPUs of the nodes, one kind a node.
func cards() []gpu.DeviceID { return []gpu.DeviceID{0x2335, 0x26b9, 0x20b5} }

// Base makes what the others need: gpuctl's CRDs, namespaces besides gpuctl's own, and
// the table. It has to be called in the root of the repository.
func (f *Fleet) Base(ctx context.Context, namespaces ...string) error {
	crds, err := filepath.Glob("charts/gpu-operator-hooks/files/crds/*.yaml")
	if err != nil {
		return err
	}
	if len(crds) == 0 {
		return fmt.Errorf("find the CRDs of the chart: there are none; run this in the root of the repository")
	}
	for _, path := range crds {
		crd, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := Write(ctx, f.client, string(crd)); err != nil {
			return err
		}
	}
	for _, name := range append(namespaces, Namespace) {
		if _, err := Write(ctx, f.client, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}"); err != nil {
			return err
		}
		if _, err := Write(ctx, f.client, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: "+name+"}"); err != nil {
			return err
		}
	}
	return f.permit(ctx)
}

// permit wires the KubeVirt CR.
func (f *Fleet) permit(ctx context.Context) error {
	var entries []string
	for _, d := range cards() {
		entries = append(entries, fmt.Sprintf(`{"pciVendorSelector":%q,"resourceName":%q,"externalResourceProvider":true}`, gpu.NVIDIA(d).Selector(), gpu.Newest().Name(d)))
	}
	patch := `{"spec":{"configuration":{"developerConfiguration":{"featureGates":["HostDevices"]},"permittedHostDevices":{"pciHostDevices":[` + strings.Join(entries, ",") + `]}}}}`
	kubeVirts := schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}
	_, err := f.client.Resource(kubeVirts).Namespace("kubevirt").Patch(ctx, "kubevirt", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// Node makes a node whose GPUs are all served, its inventory, and its agent's Lease.
func (f *Fleet) Node(ctx context.Context, i int) error {
	name, card := NodeName(i), CardOf(i)
	type function struct {
		Address, ID string
		Group, NUMA int
	}
	var functions []function
	for g := range f.gpus {
		functions = append(functions, function{gpu.Address{Bus: uint8(0x10 + 8*g)}.String(), gpu.NVIDIA(card).String(), 20 + g, 2 * g / f.gpus})
	}
	type condition struct{ Type, Status, Reason, Message string }
	values := map[string]any{
		"Name": name, "Zone": string("abc"[i%3]), "Octet": fmt.Sprintf("%d.%d", 100+i/250, i%250), "GPUs": f.gpus,
		"Resource": gpu.Newest().Name(card), "Functions": functions, "Features": features(), "Images": make30(),
		"Lease": v1alpha1.AgentLease(name), "AgentLabels": AgentLabels, "Now": f.now,
		"Conditions": []condition{
			{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
			{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
			{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
			{"Ready", "True", "KubeletReady", "kubelet is posting ready status"},
		},
	}
	for _, kind := range []string{"node", "gpunode", "lease"} {
		var text strings.Builder
		if err := f.templates.ExecuteTemplate(&text, kind+".yaml", values); err != nil {
			return err
		}
		if _, err := Write(ctx, f.client, text.String()); err != nil {
			return err
		}
	}
	return nil
}

func make30() []int {
	out := make([]int, 30)
	for i := range out {
		out[i] = 10 + i
	}
	return out
}

func features() []string {
	return []string{"ADX", "AESNI", "AVX", "AVX2", "AVX512BF16", "AVX512BITALG", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512F", "FMA3", "GFNI", "SHA", "VAES", "VPCLMULQDQ"}
}
