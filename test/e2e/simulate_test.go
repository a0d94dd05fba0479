package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// simulated is what the tests look at of an answer.
type simulated struct {
	Fits    bool
	Placed  []struct{ Node string }
	Refusal struct{ Code string }
	Devices []struct{ Device, From, To string }
	VMs     []struct{ VM, From, To, Why string }
	Notes   []string
}

// simulates asks gpuctl simulate.
func (m *market) simulates(args ...string) (out simulated) {
	m.t.Helper()
	code, stdout, stderr := gpuctl(m.Cluster, append(append([]string{"simulate"}, args...), "-o", "json")...)
	if err := json.Unmarshal([]byte(stdout), &out); err != nil {
		m.t.Fatalf("gpuctl simulate %s: exit %d: %v\n%s%s", strings.Join(args, " "), code, err, stdout, stderr)
	}
	if want := map[bool]int{true: 0, false: 1}[out.Fits]; code != want || stderr != "" || len(out.Notes) > 0 {
		m.t.Errorf("gpuctl simulate %s: exit %d, want %d, and notes %q\n%s", strings.Join(args, " "), code, want, out.Notes, stderr)
	}
	return out
}

// simulatesVM asks about a manifest that was not applied.
func (m *market) simulatesVM(u *unstructured.Unstructured) simulated {
	m.t.Helper()
	text, err := u.MarshalJSON()
	if err != nil {
		m.t.Fatal(err)
	}
	file := filepath.Join(m.t.TempDir(), "vm.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		m.t.Fatal(err)
	}
	return m.simulates("vm", "-f", file, "-n", m.acme)
}

// holds waits until an order has its units, and compares the node with what was said.
func (m *market) holds(name string, said simulated) {
	m.t.Helper()
	m.Eventually(placedIn, name+" has its units", m.are(v1alpha1.DeviceHeld, name))
	devices, err := m.devices(m.t.Context())
	if err != nil {
		m.t.Fatal(err)
	}
	if got := devices[m.acme+"/"+name].Status.Placement.Node; !said.Fits || said.Placed[0].Node != got {
		m.t.Errorf("%s is on %s, and simulate said %+v", name, got, said)
	}
}

// What simulate says happens: orders are placed and VMs start on the node that it names,
// and who it says would be refused is, with the same code.
func TestSimulateSaysWhatHappens(t *testing.T) {
	m := newMarket(t)
	t.Cleanup(m.stopsAll)
	order := func(count string, more ...string) simulated {
		return m.simulates(append([]string{"order", "--class", "h200", "--count", count, "-n", m.acme}, more...)...)
	}
	for name, count := range map[string]int{"a": 5, "b": 2, "c": 4} { // in any order
		said := order(fmt.Sprint(count))
		m.orders(name, count)
		m.holds(name, said)
	}
	if said := order("4", "--times", "9"); said.Fits || len(said.Placed) != 3 || said.Refusal.Code != "GPU0705" {
		t.Errorf("24 units less 11 are room for %+v", said)
	}
	if said := order("9"); said.Refusal.Code != "GPU0623" {
		t.Errorf("more than the class allows: %+v", said)
	}

	fits := m.vm("fits", references(`{"devices":["a"],"templates":[{"class":"h200","count":3}]}`))
	moves := m.vm("moves", references(`{"devices":["b","c"]}`))
	node := ""
	for _, vm := range []*unstructured.Unstructured{fits, moves} {
		said := m.simulatesVM(vm)
		m.Create(vm)
		units := map[string]int{"fits": 8, "moves": 6}[vm.GetName()]
		if node = m.runs(vm.GetName(), units); !said.Fits || said.Placed[0].Node != node {
			t.Errorf("%s runs on %s, and simulate said %+v", vm.GetName(), node, said)
		}
	}
	m.refusesAsSaid()
	m.drainsAsSaid(node)
}

// refusesAsSaid has VMs refused for what their launchers need.
func (m *market) refusesAsSaid() {
	m.t.Helper()
	set := func(name string, value any, path ...string) *unstructured.Unstructured {
		u := m.vm(name, references(`{"templates":[{"class":"h200","count":2}]}`))
		if err := unstructured.SetNestedField(u.Object, value, append([]string{"spec", "template", "spec"}, path...)...); err != nil {
			m.t.Fatal(err)
		}
		return u
	}
	for _, vm := range []*unstructured.Unstructured{
		set("selective", map[string]any{"zone": "nowhere"}, "nodeSelector"),
		set("intolerant", []any{}, "tolerations"),
		set("large", map[string]any{"memory": "900Ti"}, "domain", "resources", "requests"),
	} {
		said := m.simulatesVM(vm)
		m.Create(vm)
		m.Eventually(startsIn, vm.GetName()+" is refused", func(ctx context.Context) error {
			if text := m.failure(ctx, vm.GetName()); said.Fits || !strings.Contains(text, said.Refusal.Code+": ") {
				return errorf("it says %q, and simulate said %+v", text, said)
			}
			return nil
		})
		m.strategy(vm.GetName(), "Halted")
		if again := m.simulates("vm", vm.GetName(), "-n", m.acme); again.Refusal != said.Refusal {
			m.t.Errorf("of the VM that is there it says %+v, of its manifest it said %+v", again, said)
		}
	}
}

// drainsAsSaid cordons the node of VM moves and stops it there: it starts again where simulate
// says.
func (m *market) drainsAsSaid(from string) {
	m.t.Helper()
	said := m.simulates("drain", from)
	if len(said.VMs) != 1 || said.VMs[0].VM != m.acme+"/moves" || said.VMs[0].From != from || said.VMs[0].To == "" || len(said.Devices) != 2 {
		m.t.Fatalf("simulate says %+v of the node %s", said, from)
	}
	patch := []byte(`{"spec":{"unschedulable":true}}`)
	if _, err := m.Clientset().CoreV1().Nodes().Patch(m.t.Context(), from, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		m.t.Fatal(err)
	}
	m.strategy("moves", "Halted")
	m.Eventually(startsIn, "the devices are held", m.are(v1alpha1.DeviceHeld, "b", "c"))
	m.strategy("moves", "Always")
	m.Eventually(startsIn, "it starts again", func(ctx context.Context) error {
		_, err := m.instance(ctx, "moves")
		return err
	})
	if to := m.runs("moves", 6); to != said.VMs[0].To {
		m.t.Errorf("it runs on %s, and simulate said %+v", to, said)
	}
}

// An account that may read what docs/diagnose.md lists can simulate, and one without a right
// is told which.
func TestSimulateRights(t *testing.T) {
	c := testcluster.Start(t, testcluster.APIOnly())
	installCRDs(t, c)
	c.AddNode(testcluster.Node{Name: "n1", Resources: map[corev1.ResourceName]int64{h200: 8}})
	for _, object := range []string{
		"{apiVersion: v1, kind: Namespace, metadata: {name: acme}}",
		fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: %s, maxCount: 8}}", h200),
	} {
		c.Create(c.Decode(object))
	}
	rules := reader(t, c)
	for name, tc := range map[string]struct {
		without, says string
		code          int
	}{
		"all that is documented": {"", "on      n1", 0},
		"no namespaces":          {"namespaces", "GPU0130", 1},
		"no pods":                {"pods", "GPU0130", 1},
		"no devices":             {"gpudevices", "GPU0130", 1},
	} {
		t.Run(name, func(t *testing.T) {
			user := c.KubeconfigFor(c.User(strings.ReplaceAll(name, " ", "-"), without(rules, tc.without)...))
			for _, args := range [][]string{{"order", "--class", "h200", "-n", "acme"}, {"order", "--class", "h200", "-n", "acme", "--drain", "n1"}} {
				code, stdout, stderr := gpuctlAs(user, append([]string{"simulate"}, args...)...)
				wantCode, says := tc.code, tc.says
				if len(args) > 5 && wantCode == 0 {
					wantCode, says = 1, "GPU0702"
				}
				if code != wantCode || !strings.Contains(stdout+stderr, says) {
					t.Errorf("%s: exit %d, want %d and %q\n%s%s", strings.Join(args, " "), code, wantCode, says, stdout, stderr)
				}
			}
		})
	}
}
