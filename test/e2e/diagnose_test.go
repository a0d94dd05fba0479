package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// diagnoseBoth diagnoses a cluster, and a bundle of it: both have to come to the same.
func diagnoseBoth(t *testing.T, c *cluster.Cluster, args ...string) (code int, found []diagnose.Finding) {
	t.Helper()
	bundle := filepath.Join(t.TempDir(), "bundle.tar.gz")
	code, stdout, stderr := gpuctl(c, append([]string{"diagnose", "-o", "json", "--bundle", bundle}, args...)...)
	if code != 0 && code != 3 {
		t.Fatalf("diagnose --bundle: exit %d\n%s", code, stderr)
	}
	if strings.Contains(stderr, "other findings") {
		t.Errorf("the bundle is said to come to other findings: %s", stderr)
	}
	found = findingsOf(t, stdout)
	again, stdout, stderr := run(append([]string{"diagnose", "-o", "json", "-f", bundle}, args...)...)
	if diff := cmp.Diff(found, findingsOf(t, stdout)); diff != "" || again != code {
		t.Errorf("exit %d live, %d from the bundle; findings (-live +bundle):\n%s\n%s", code, again, diff, stderr)
	}
	return code, found
}

// diagnoseLive reads the findings of a diagnosis that has to succeed.
func diagnoseLive(t *testing.T, c *cluster.Cluster, args ...string) (code int, found []diagnose.Finding) {
	t.Helper()
	code, stdout, stderr := gpuctl(c, append([]string{"diagnose", "-o", "json"}, args...)...)
	if code != 0 && code != 3 || stderr != "" {
		t.Fatalf("diagnose %s: exit %d\n%s", strings.Join(args, " "), code, stderr)
	}
	return code, findingsOf(t, stdout)
}

// findingsOf reads what diagnose prints as JSON.
func findingsOf(t *testing.T, text string) []diagnose.Finding {
	t.Helper()
	var view struct{ Findings []diagnose.Finding }
	if err := json.Unmarshal([]byte(text), &view); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return view.Findings
}

// verdict is the head of a diagnosis: its exit code and its first finding, in short.
type verdict struct {
	Exit     int
	Code     diagnose.Code
	Severity diagnose.Severity
	Object   string
}

func verdictOf(code int, found []diagnose.Finding) verdict {
	if len(found) == 0 {
		return verdict{Exit: code}
	}
	return verdict{code, found[0].Code, found[0].Severity, found[0].Object}
}

// gone returns a check that a diagnosis has no finding of a code any more.
func gone(t *testing.T, c *cluster.Cluster, code diagnose.Code, args ...string) func(context.Context) error {
	t.Helper()
	return func(context.Context) error {
		_, found := diagnoseLive(t, c, args...)
		for _, f := range found {
			if f.Code == code {
				return errorf("%s is there: %s", code, f.Message)
			}
		}
		return nil
	}
}

var hinted = regexp.MustCompile(`(gpuctl|kubectl) [a-z]+(?: vm [a-z0-9-]+| -n [a-z0-9-]+| --[a-z-]+| \S+[=/]\S+)*`)

// obey runs the last command of a hint, which is the one that changes something.
func obey(t *testing.T, c *cluster.Cluster, hint string) {
	t.Helper()
	commands := hinted.FindAllString(hint, -1)
	if len(commands) == 0 {
		t.Fatalf("no command in hint %q", hint)
	}
	words := strings.Fields(commands[len(commands)-1])
	if words[0] == "gpuctl" {
		succeed(t, c, words[1:]...)
		return
	}
	out, err := exec.CommandContext(t.Context(), c.Binary("kubectl"), append(words[1:], "--kubeconfig", c.Kubeconfig())...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// machine returns a VM that is to run, with devices such as "gpus: […]".
func machine(c *cluster.Cluster, namespace, name, devices string) *unstructured.Unstructured {
	return c.Decode(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %s, namespace: %s}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 0
      tolerations: [{operator: Exists}]
      domain:
        resources: {requests: {memory: 64Mi}}
        devices: {%s}
`, name, namespace, devices))
}

// entries writes so many device entries of a VM.
func entries(field, device string, count int) string {
	var list []string
	for i := range count {
		list = append(list, fmt.Sprintf("{name: dev%d, deviceName: %q}", i, device))
	}
	return field + ": [" + strings.Join(list, ", ") + "]"
}

// instanceOf returns the instance of a VM, as far as it takes to find it.
func instanceOf(c *cluster.Cluster, vm *unstructured.Unstructured) *unstructured.Unstructured {
	return vmi(c, vm.GetNamespace(), vm.GetName(), "gpus", h200)
}

// waits returns a check that a VM has a condition whose message has some words.
func waits(c *cluster.Cluster, u *unstructured.Unstructured, kind, words string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := c.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
		for _, x := range conditions {
			if m := x.(map[string]any); m["type"] == kind && strings.Contains(fmt.Sprint(m["message"]), words) {
				return nil
			}
		}
		return errorf("%s has no %s that says %q: %v", u.GetName(), kind, words, conditions)
	}
}

// fault is one way in which the wiring breaks.
type fault struct {
	// provoke makes the fault and waits until the cluster shows it. It returns what
	// is to be diagnosed.
	provoke func(w *ward) (subject []string)
	want    verdict
	says    string // words of the first finding's message
	// cure does what the hint says.
	cure func(w *ward, hint string)
}

// noMachines waits until the VMs of earlier tests are gone, and their instances.
func noMachines(c *cluster.Cluster) {
	noneLeft(c, "VirtualMachine")
	noInstances(c)
}

// ward is a cluster with one fault.
type ward struct {
	*cluster.Cluster
	t  *testing.T
	ns string
	vm *unstructured.Unstructured // that suffers from it, if one does
	// Of single faults:
	stage *stage                     // with the agent that reports the card
	thing *unstructured.Unstructured // that is in the way
	down  atomic.Bool                // whether the device plugin's pods fail
}

// suffer creates the VM that suffers from the fault.
func (w *ward) suffer(devices string) []string {
	w.t.Helper()
	w.vm = w.create(machine(w.Cluster, w.ns, "trainer", devices))
	return []string{"vm/trainer", "-n", w.ns}
}

// create creates a VM, which is deleted when the test ends: that is sooner done than
// by its namespace.
func (w *ward) create(vm *unstructured.Unstructured) *unstructured.Unstructured {
	w.t.Helper()
	w.t.Cleanup(func() { deleteAnyway(w.t, w.Cluster, vm) })
	return w.Create(vm)
}

// run waits until the VM has its launcher, and has it run.
func (w *ward) run() {
	w.t.Helper()
	w.Eventually(soon, "the VM has its launcher", pods(w.Cluster, instanceOf(w.Cluster, w.vm), 1))
	w.RunVMI(w.ns, w.vm.GetName())
}

func faults() map[string]fault {
	const kv, trainer = "KubeVirt kubevirt/kubevirt", "VirtualMachine NS/trainer"
	return map[string]fault{
		"the gate is missing": {
			gateMissing, verdict{3, "GPU0301", diagnose.Error, kv}, "refuses every VM with hostDevices, as " + trainer, gateAdded,
		},
		"the table lacks the name": {
			nameMissing, verdict{3, "GPU0302", diagnose.Error, kv}, "node worker-1 serves it", byCommandAndRuns,
		},
		"the VM has another spelling": {
			misspelt, verdict{3, "GPU0501", diagnose.Error, trainer}, "nodes serve nvidia.com/TU104GL_TESLA_T4", spelt,
		},
		"the card is on a host driver": {
			onHostDriver, verdict{3, "GPU0201", diagnose.Error, "node/worker-1"}, "on driver nvidia", rebound,
		},
		"the IOMMU group is blocked": {
			groupBlocked, verdict{3, "GPU0204", diagnose.Error, "node/worker-1 0000:10:00.0"}, "in IOMMU group 7 is on driver snd_hda_intel", groupFreed,
		},
		"the device plugin is down": {
			pluginDown, verdict{3, "GPU0416", diagnose.Error, "node/worker-1"}, "CrashLoopBackOff", pluginUp,
		},
		"all devices are unhealthy": {
			unhealthy, verdict{3, "GPU0414", diagnose.Error, "node/worker-1"}, "capacity 8 of " + h200 + " and allocatable 0", healthy,
		},
		"the legacy ConfigMap is there": {
			legacyConfigMap, verdict{0, "GPU0315", diagnose.Warning, "ConfigMap kubevirt/kubevirt-config"}, "carries feature-gates", legacyDeleted,
		},
		"HyperConverged lacks the name": {
			hyperConvergedLacks, verdict{3, "GPU0302", diagnose.Error, "HyperConverged kubevirt/hco"}, "node worker-1 serves it", passedOn,
		},
		"HyperConverged passes nothing on": {
			hyperConvergedStuck, verdict{3, "GPU0327", diagnose.Error, "HyperConverged kubevirt/hco"}, "HyperConverged's operator has not passed them on", passedOn,
		},
		"the device comes from a claim": {
			claimed, verdict{0, "GPU0512", diagnose.Warning, trainer}, `takes gpus "dev0" from a resource claim`, claimsOff,
		},
		"all units are taken": {
			taken, verdict{0, "GPU0506", diagnose.Warning, trainer}, "the only one is taken on node worker-1; held by NS/holder", holderStopped,
		},
		"nobody has tried again": {
			notTriedAgain, verdict{3, "GPU0509", diagnose.Error, trainer}, "permitted now", byCommandAndRuns,
		},
	}
}

// Each fault is found at once, and first; what the finding says to do heals it.
func TestDiagnoseFaults(t *testing.T) {
	for name, tc := range faults() {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			noMachines(c)
			unwired(c)
			tc.run(&ward{Cluster: c, t: t, ns: c.Namespace()})
		})
	}
}

func (f *fault) run(w *ward) {
	t := w.t
	subject := f.provoke(w)
	code, found := diagnoseBoth(t, w.Cluster, subject...)
	for _, f := range found {
		t.Logf("%s %s %s: %s\n    %s", f.Code, f.Severity, f.Object, f.Message, f.Hint)
	}
	want, says := f.want, strings.ReplaceAll(f.says, "NS", w.ns)
	want.Object = strings.ReplaceAll(want.Object, "NS", w.ns)
	if diff := cmp.Diff(want, verdictOf(code, found)); diff != "" {
		t.Fatalf("the diagnosis (-want +got):\n%s", diff)
	}
	if !strings.Contains(found[0].Message, says) {
		t.Errorf("the message lacks %q: %s", says, found[0].Message)
	}
	f.cure(w, found[0].Hint)
	w.Eventually(soon, "the diagnosis is healed", gone(t, w.Cluster, want.Code, subject...))
	_, left := diagnoseBoth(t, w.Cluster, subject...)
	for _, f := range left {
		if f.Severity == diagnose.Error {
			t.Errorf("left: %s %s: %s\n    %s", f.Code, f.Object, f.Message, f.Hint)
		}
	}
	w.forgotten()
}
