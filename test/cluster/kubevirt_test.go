package cluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestVersions(t *testing.T) {
	c := shared.For(t)
	version, err := c.Clientset().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if want := "v1.37."; !strings.HasPrefix(version.GitVersion, want) || version.Minor != "37" {
		t.Errorf("API server: got version %q, minor %q; want %q…", version.GitVersion, version.Minor, want)
	}
	kv := c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}}")
	if err := says(c, kv, "Deployed", phase)(t.Context()); err != nil {
		t.Error(err)
	}
}

// With no table of permitted devices, any GPU may be used. The pod that
// virt-controller renders goes to the node that has the GPU, a second one waits
// for it, and gets it when the first is gone.
func TestGPUGoesToTheNodeThatHasIt(t *testing.T) {
	const gpu = "nvidia.com/GOES_TO_NODE"
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "goes-plain"})
	c.AddNode(cluster.Node{Name: "goes-gpu", Resources: map[corev1.ResourceName]int64{gpu: 1}})
	ns := c.Namespace()
	first := c.Create(vm(c, ns, "first", "Always", gpu))
	if node := c.RunVMI(ns, "first"); node != "goes-gpu" {
		t.Errorf("the VMI runs on %q", node)
	}
	c.Eventually(soon, "the VM runs", says(c, first, "Running", printable))
	pod := c.LauncherPod(ns, "first")
	if got := pod.Spec.Containers[0].Resources.Limits[gpu]; got.Value() != 1 {
		t.Errorf("container %q asks for %v of %s, want 1", pod.Spec.Containers[0].Name, got.String(), gpu)
	}

	c.Create(vmi(c, ns, "second", "gpus", gpu))
	second := vmi(c, ns, "second", "gpus", gpu)
	c.Eventually(soon, "the second VMI waits", says(c, second, "Insufficient "+gpu, condition("PodScheduled")))
	if err := c.Resource(first).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if node := c.RunVMI(ns, "second"); node != "goes-gpu" {
		t.Errorf("the second VMI runs on %q", node)
	}
	c.Eventually(soon, "the second VMI runs", says(c, second, "Running", phase))
	c.Eventually(soon, "the first VM is gone", func(ctx context.Context) error {
		_, err := c.Resource(first).Get(ctx, "first", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("get the VM: %w", err)
		}
		return nil
	})
}

func TestGPUThatIsNotPermitted(t *testing.T) {
	const gpu = "nvidia.com/NOT_PERMITTED"
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "permit-gpu", Resources: map[corev1.ResourceName]int64{gpu: 1}})
	c.PatchKubeVirt(permit("nvidia.com/ANOTHER"))
	ns := c.Namespace()
	refused := c.Create(vmi(c, ns, "refused", "gpus", gpu))
	const message = "failed to render launch manifest: GPU " + gpu + " is not permitted in permittedHostDevices configuration"
	c.Eventually(soon, "the VMI is refused", says(c, refused, message, condition("Synchronized")))
	if err := says(c, refused, "Pending", phase)(t.Context()); err != nil {
		t.Error(err)
	}

	c.PatchKubeVirt(permit(gpu))
	c.Eventually(soon, "a new VMI gets its pod", func(ctx context.Context) error {
		// virt-controller may not have seen the new table yet.
		name := fmt.Sprintf("permitted-%d", time.Now().UnixNano())
		u := c.Create(vmi(c, ns, name, "gpus", gpu))
		time.Sleep(time.Second)
		return says(c, u, "Schedul", phase)(ctx)
	})
}

// permit returns a patch of the KubeVirt CR that permits one GPU only.
func permit(resource string) string {
	return fmt.Sprintf(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[
		{"pciVendorSelector":"10DE:2236","resourceName":%q,"externalResourceProvider":true}]}}}}`, resource)
}

func TestHostDevicesNeedTheirGate(t *testing.T) {
	c := shared.For(t)
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	u := vmi(c, metav1.NamespaceDefault, "gated", "hostDevices", "nvidia.com/GATED")
	c.Eventually(soon, "the VMI is refused", func(ctx context.Context) error {
		_, err := c.Resource(u).Create(ctx, u, dryRun)
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "Host Devices feature gate is not enabled") {
			return fmt.Errorf("without the gate, the result is %q", fmt.Sprint(err))
		}
		return nil
	})
	c.PatchKubeVirt(`{"spec":{"configuration":{"developerConfiguration":{"featureGates":["HostDevices"]}}}}`)
	c.Eventually(soon, "the VMI is admitted", func(ctx context.Context) error {
		_, err := c.Resource(u).Create(ctx, u, dryRun)
		return err
	})
}

func TestSubresourceStartsVM(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	u := c.Create(vm(c, ns, "stopped", "Manual", "nvidia.com/SUBRESOURCE"))
	c.Eventually(soon, "the VM is stopped", says(c, u, "Stopped", printable))
	start := c.Clientset().Discovery().RESTClient().Put().
		AbsPath("/apis/subresources.kubevirt.io/v1/namespaces", ns, "virtualmachines", "stopped", "start").
		Body([]byte("{}")).Do(t.Context())
	if err := start.Error(); err != nil {
		t.Fatal(err)
	}
	instance := vmi(c, ns, "stopped", "gpus", "nvidia.com/SUBRESOURCE")
	c.Eventually(soon, "the VMI exists", says(c, instance, "Schedul", phase))
}
