package e2e

import (
	"context"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// entryOfH200 is what the table of the KubeVirt CR has for the H200.
const entryOfH200 = `{"pciVendorSelector":"10DE:2335","resourceName":"` + h200 + `","externalResourceProvider":true}`

// permit has the KubeVirt CR permit entries and nothing else.
func (w *ward) permit(entries ...string) {
	w.t.Helper()
	w.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[` + strings.Join(entries, ",") + `]}}}}`)
}

// byCommand runs the command in the hint.
func byCommand(w *ward, hint string) {
	w.t.Helper()
	obey(w.t, w.Cluster, hint)
}

// byCommandAndRuns runs the command in the hint, and with it the VM runs.
func byCommandAndRuns(w *ward, hint string) {
	w.t.Helper()
	byCommand(w, hint)
	w.run()
}

// gateMissing takes the gate away while a VM with a host device is stopped; when it is
// started, virt-api refuses its instance.
func gateMissing(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	succeed(w.t, w.Cluster, "wire")
	u := machine(w.Cluster, w.ns, "trainer", entries("hostDevices", h200, 1))
	u.Object["spec"].(map[string]any)["runStrategy"] = "Manual"
	w.vm = w.create(u)
	w.Eventually(soon, "KubeVirt has seen the VM", waits(w.Cluster, w.vm, "Ready", "does not exist"))
	w.PatchKubeVirt(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":["LiveMigration"]}}}}`)
	probe := vmi(w.Cluster, w.ns, "probe", "hostDevices", h200)
	w.Eventually(soon, "virt-api refuses host devices", func(ctx context.Context) error {
		if _, err := w.Resource(probe).Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err == nil {
			return errorf("it does not")
		}
		return nil
	})
	start := "/apis/subresources.kubevirt.io/v1/namespaces/" + w.ns + "/virtualmachines/trainer/start"
	if err := w.Clientset().CoreV1().RESTClient().Put().AbsPath(start).Body([]byte("{}")).Do(w.t.Context()).Error(); err != nil {
		w.t.Fatal(err)
	}
	w.Eventually(soon, "the VM fails", waits(w.Cluster, w.vm, "Failure", "Host Devices feature gate is not enabled"))
	time.Sleep(6 * time.Second) // now KubeVirt takes its time: its next try is at 10 s
	return nil
}

// gateAdded runs the command in the hint. KubeVirt may not have tried again: what that
// finding says is done as well, and the VM runs.
func gateAdded(w *ward, hint string) {
	w.t.Helper()
	byCommand(w, hint)
	code, found := diagnoseBoth(w.t, w.Cluster, "vm/trainer", "-n", w.ns)
	want := verdict{3, "GPU0509", diagnose.Error, "VirtualMachine " + w.ns + "/trainer"}
	if diff := cmp.Diff(want, verdictOf(code, found)); diff != "" {
		w.t.Fatalf("the diagnosis (-want +got):\n%s", diff)
	}
	obey(w.t, w.Cluster, found[0].Hint)
	w.run()
}

// forgotten deletes the VM: the Events about it that are left are nobody's trouble.
func (w *ward) forgotten() {
	w.t.Helper()
	if w.vm == nil {
		return
	}
	deleteAnyway(w.t, w.Cluster, w.vm)
	w.goes(w.vm)
	_, found := diagnoseBoth(w.t, w.Cluster)
	for _, f := range found {
		if strings.Contains(f.Object+f.Message, "trainer") {
			w.t.Errorf("found of a VM that is gone: %s %s: %s", f.Code, f.Object, f.Message)
		}
	}
}

// nameMissing has a table that permits nothing.
func nameMissing(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	return refusedByTable(w)
}

// refusedByTable has the KubeVirt CR permit entries only, and waits until KubeVirt has
// refused the VM's instance.
func refusedByTable(w *ward, permitted ...string) []string {
	w.t.Helper()
	w.permit(permitted...)
	subject := w.suffer(entries("gpus", h200, 1))
	w.Eventually(soon, "the instance is refused", hangs(w.Cluster, instanceOf(w.Cluster, w.vm)))
	return subject
}

const (
	t4    = "nvidia.com/TU104GL_TESLA_T4"
	oldT4 = "nvidia.com/TU104GL_Tesla_T4"
)

// misspelt has a VM that asks for a name as old manifests write it.
func misspelt(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", t4, 4))
	succeed(w.t, w.Cluster, "wire")
	subject := w.suffer(entries("gpus", oldT4, 1))
	w.Eventually(soon, "the instance is refused", hangs(w.Cluster, instanceOf(w.Cluster, w.vm)))
	return subject
}

// spelt writes the name that the hint says into the VM.
func spelt(w *ward, hint string) {
	w.t.Helper()
	name, ok := strings.CutPrefix(hint, "write ")
	if !ok {
		w.t.Fatalf("the hint is %q", hint)
	}
	instance := instanceOf(w.Cluster, w.vm)
	w.patch(`{"spec":{"runStrategy":"Halted"}}`)
	w.goes(instance)
	w.patch(`{"spec":{"runStrategy":"Always","template":{"spec":{"domain":{"devices":{"gpus":[{"name":"dev0","deviceName":"` + name + `"}]}}}}}}`)
	w.run()
}

// patch changes the VM.
func (w *ward) patch(patch string) {
	w.t.Helper()
	if _, err := w.Resource(w.vm).Patch(w.t.Context(), w.vm.GetName(), types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// goes waits until an object is gone.
func (w *ward) goes(u *unstructured.Unstructured) {
	w.t.Helper()
	w.Eventually(soon, u.GetKind()+" "+u.GetName()+" is gone", func(ctx context.Context) error {
		if _, err := w.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errorf("it is there: %v", err)
		}
		return nil
	})
}

// legacyConfigMap makes the ConfigMap that configured KubeVirt before its CR did.
func legacyConfigMap(w *ward) []string {
	w.t.Helper()
	w.thing = w.Create(w.Decode("{apiVersion: v1, kind: ConfigMap, metadata: {name: kubevirt-config, namespace: kubevirt}, data: {feature-gates: LiveMigration}}"))
	w.t.Cleanup(func() { deleteAnyway(w.t, w.Cluster, w.thing) })
	return nil
}

func legacyDeleted(w *ward, hint string) {
	w.t.Helper()
	if !strings.Contains(hint, "delete the ConfigMap") {
		w.t.Errorf("the hint is %q", hint)
	}
	deleteAnyway(w.t, w.Cluster, w.thing)
}

const entryOfQAT = `{"pciVendorSelector":"8086:37C8","resourceName":"intel.com/qat","externalResourceProvider":true}`

// hyperConvergedLacks has a HyperConverged that permits something else, and so has its
// KubeVirt.
func hyperConvergedLacks(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	w.thing = hyperConverged(w.t, w.Cluster, "testdata/hyperconverged-v1.yaml", "v1",
		`{virtualization: {permittedHostDevices: {pciHostDevices: [{pciDeviceSelector: "8086:37C8", resourceName: intel.com/qat, externalResourceProvider: true}]}}}`)
	return refusedByTable(w, entryOfQAT)
}

// hyperConvergedStuck has a HyperConverged that permits the name, and nobody who
// tells the KubeVirt CR.
func hyperConvergedStuck(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	w.thing = hyperConverged(w.t, w.Cluster, "testdata/hyperconverged-v1.yaml", "v1",
		`{virtualization: {permittedHostDevices: {pciHostDevices: [{pciDeviceSelector: "10DE:2335", resourceName: `+h200+`, externalResourceProvider: true}]}}}`)
	return refusedByTable(w)
}

// passedOn plays HyperConverged's operator while the command in the hint runs.
func passedOn(w *ward, hint string) {
	w.t.Helper()
	copied := passOn(w.Cluster, w.thing)
	byCommandAndRuns(w, hint)
	<-copied
}

// claimed has a VM that takes its GPU from a resource claim.
func claimed(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 8))
	succeed(w.t, w.Cluster, "wire")
	w.PatchKubeVirt(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":["LiveMigration","HostDevices","GPUsWithDRA"]}}}}`)
	u := machine(w.Cluster, w.ns, "trainer", "gpus: [{name: dev0, claimName: gpu, requestName: any}]")
	claims := []any{map[string]any{"name": "gpu", "resourceClaimTemplateName": "h200"}}
	if err := unstructured.SetNestedSlice(u.Object, claims, "spec", "template", "spec", "resourceClaims"); err != nil {
		w.t.Fatal(err)
	}
	w.Eventually(soon, "virt-api lets devices come from claims", func(ctx context.Context) (err error) {
		w.vm, err = w.Resource(u).Create(ctx, u, metav1.CreateOptions{})
		return err
	})
	return []string{"vm/trainer", "-n", w.ns}
}

// claimsOff takes the gate out again.
func claimsOff(w *ward, hint string) {
	w.t.Helper()
	if !strings.Contains(hint, "take GPUsWithDRA and HostDevicesWithDRA out of featureGates") {
		w.t.Errorf("the hint is %q", hint)
	}
	w.PatchKubeVirt(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":["LiveMigration","HostDevices"]}}}}`)
}

// taken has another VM hold the only GPU.
func taken(w *ward) []string {
	w.t.Helper()
	w.AddNode(gpuNode("worker-1", h200, 1))
	succeed(w.t, w.Cluster, "wire")
	w.thing = w.create(machine(w.Cluster, w.ns, "holder", entries("gpus", h200, 1)))
	w.Eventually(soon, "the holder has its launcher", pods(w.Cluster, instanceOf(w.Cluster, w.thing), 1))
	w.RunVMI(w.ns, "holder")
	subject := w.suffer(entries("gpus", h200, 1))
	w.Eventually(soon, "the VM is not scheduled", waits(w.Cluster, instanceOf(w.Cluster, w.vm), "PodScheduled", "Insufficient "+h200))
	return subject
}

// holderStopped stops the holder; then the other one gets the GPU.
func holderStopped(w *ward, hint string) {
	w.t.Helper()
	stdout, _ := succeed(w.t, w.Cluster, "status", "-o", "wide")
	if !strings.Contains(hint, "gpuctl status -o wide shows who has them") || !strings.Contains(stdout, w.ns+"/holder") {
		w.t.Errorf("status does not show what the hint says, %q:\n%s", hint, stdout)
	}
	deleteAnyway(w.t, w.Cluster, w.thing)
	w.run()
}

// notTriedAgain permits the name when KubeVirt has refused it for a while, so that it
// takes its time: its next try is at 41 s. The ConfigMap is nothing to this KubeVirt.
func notTriedAgain(w *ward) []string {
	w.t.Helper()
	legacyConfigMap(w)
	began := time.Now()
	subject := nameMissing(w)
	time.Sleep(time.Until(began.Add(25 * time.Second)))
	w.permit(entryOfH200)
	return subject
}
