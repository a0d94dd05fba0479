package e2e

import (
	"context"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// What diagnose and bindings say of VMs that name devices, as KubeVirt tells of them: one
// that runs, one that is refused, and one whose launcher cannot be placed.
func TestDiagnoseStarts(t *testing.T) {
	m := newMarket(t)
	t.Cleanup(m.stopsAll)
	m.orders("a", 1)
	m.orders("b", 1)
	m.Eventually(placedIn, "the orders have their units", m.are(v1alpha1.DeviceHeld, "a", "b"))

	m.Create(m.vm("trainer", references(`{"devices":["a"],"templates":[{"class":"h200","count":2}]}`)))
	node := m.runs("trainer", 3)
	made := m.attached("trainer", node, 2)[0]
	m.explains("trainer", 0,
		"a has 1 x h200 on "+node+" (Attached); "+made+" has 2 x h200 on "+node+" (Attached), made from a template of the VM",
		node+" (", " of 8 free)", "on "+node+", pinned to it", "instance    Running")
	m.shows([]string{"bindings", "-n", m.acme}, "trainer", "a,"+made, "h200", "3", node, "Attached")

	m.Create(m.vm("second", references(`{"devices":["nobody"]}`)))
	m.denied("second", "GPU0632")
	m.explains("second", 0, "order       GPU0632", "there is no GPUDevice nobody in namespace "+m.acme, "kubectl get gpudevices -n "+m.acme)

	m.Create(m.vm("third", references(`{"devices":["a"]}`)))
	m.denied("third", "GPU0634")
	m.explains("third", 0, "GPU0634", "GPUDevice a is in use by VMI trainer")

	picky := m.vm("picky", references(`{"devices":["b"]}`))
	if err := unstructured.SetNestedField(picky.Object, "nowhere", "spec", "template", "spec", "nodeSelector", "kubernetes.io/hostname"); err != nil {
		t.Fatal(err)
	}
	m.Create(picky)
	m.denied("picky", "GPU0704")
	m.explains("picky", 0, "placement   GPU0704", "node selector, tolerations, affinity, CPU and memory")
	if err := m.vms("virtualmachines").Delete(t.Context(), "picky", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	m.strands("b")
}

// strands has a VM's launcher wait for a node that takes nothing new once the VM has it.
func (m *market) strands(device string) {
	t := m.t
	t.Helper()
	stranded := m.vm("stranded", references(`{"devices":[%q]}`, device))
	terms := []any{map[string]any{"maxSkew": int64(1), "topologyKey": "nobody.example/has-it", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": map[string]any{}}}
	if err := unstructured.SetNestedSlice(stranded.Object, terms, "spec", "template", "spec", "topologySpreadConstraints"); err != nil {
		t.Fatal(err)
	}
	m.Create(stranded) // topology spread is the scheduler's own: the binder does not look at it
	var node string
	m.Eventually(startsIn, "the scheduler has said why", func(ctx context.Context) error {
		devices, err := m.devices(ctx)
		if err != nil {
			return err
		}
		if p := devices[m.acme+"/"+device].Status.Placement; p != nil {
			node = p.Node
		}
		_, stdout, _ := gpuctlAs(m.Kubeconfig(), "diagnose", "vm/stranded", "-n", m.acme)
		if !strings.Contains(stdout, "GPU0507") {
			return errorf("it says\n%s", stdout)
		}
		return nil
	})
	m.explains("stranded", 3, "launcher    GPU0507", "it can run on "+node+" only, where the devices of the VM are", "kubectl describe node "+node)
}

// denied waits until KubeVirt tells of a refusal with a code.
func (m *market) denied(vm, code string) {
	m.t.Helper()
	m.Eventually(startsIn, vm+" is refused for "+code, func(ctx context.Context) error {
		if said := m.failure(ctx, vm); !strings.Contains(said, code) {
			return errorf("it says %q", said)
		}
		return nil
	})
}

// explains looks at what diagnose says of a VM.
func (m *market) explains(vm string, want int, words ...string) {
	m.t.Helper()
	code, stdout, stderr := gpuctlAs(m.Kubeconfig(), "diagnose", "vm/"+vm, "-n", m.acme)
	if code != want {
		m.t.Errorf("diagnose vm/%s: exit %d, want %d: %s", vm, code, want, stderr)
	}
	for _, w := range words {
		if !strings.Contains(stdout, w) {
			m.t.Errorf("diagnose vm/%s does not say %q:\n%s", vm, w, stdout)
		}
	}
}
