package cluster_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/test/cluster"
)

var shared = cluster.NewShared()

func TestMain(m *testing.M) {
	if isProgram() {
		return
	}
	os.Exit(shared.Main(m))
}

const soon = 30 * time.Second

// vmi returns a VMI with one entry of a kind of device, "gpus" or "hostDevices".
func vmi(c *cluster.Cluster, namespace, name, devices, resource string) *unstructured.Unstructured {
	return c.Decode(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachineInstance
metadata: {name: %s, namespace: %s}
spec: %s`, name, namespace, guest(devices, resource)))
}

// vm returns a VirtualMachine with one GPU.
func vm(c *cluster.Cluster, namespace, name, runStrategy, resource string) *unstructured.Unstructured {
	return c.Decode(fmt.Sprintf(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: %s, namespace: %s}
spec:
  runStrategy: %s
  template: {spec: %s}`, name, namespace, runStrategy, guest("gpus", resource)))
}

func guest(devices, resource string) string {
	return fmt.Sprintf(`{
  terminationGracePeriodSeconds: 0,
  domain: {
    resources: {requests: {memory: 64Mi}},
    devices: {
      %s: [{name: dev0, deviceName: %s}],
      disks: [{name: d, disk: {bus: virtio}}]}},
  volumes: [{name: d, containerDisk: {image: registry.invalid/disk:1}}]}`, devices, resource)
}

// says returns a check that a string in an object holds a text.
func says(c *cluster.Cluster, u *unstructured.Unstructured, want string, read func(*unstructured.Unstructured) string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := c.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if text := read(got); !strings.Contains(text, want) {
			return fmt.Errorf("%s %s: got %q, want %q", u.GetKind(), u.GetName(), text, want)
		}
		return nil
	}
}

// condition returns a reader of the message of a condition that is False.
func condition(kind string) func(*unstructured.Unstructured) string {
	return func(u *unstructured.Unstructured) string {
		conditions, _, _ := unstructured.NestedSlice(u.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == kind && c["status"] == "False" {
				return fmt.Sprint(c["message"])
			}
		}
		return ""
	}
}

func phase(u *unstructured.Unstructured) string {
	s, _, _ := unstructured.NestedString(u.Object, "status", "phase")
	return s
}

func printable(u *unstructured.Unstructured) string {
	s, _, _ := unstructured.NestedString(u.Object, "status", "printableStatus")
	return s
}
