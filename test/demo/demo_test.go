package demo

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/internal/cli"
	"github.com/gpuctl/gpuctl/internal/discover"
	"github.com/gpuctl/gpuctl/test/cluster"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

const (
	h200 = "nvidia.com/GH100_H200_SXM_141GB"
	// table is a KubeVirt CR as a platform ships it: other devices are permitted,
	// and so every name is checked.
	table = `{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[` +
		`{"pciVendorSelector":"15B3:101E","resourceName":"mellanox.com/connectx_vf","externalResourceProvider":true}]}}}}`
)

// stage is where the story is told.
type stage struct {
	t   *testing.T
	c   *cluster.Cluster
	out io.Writer
}

// TestDemo wires a cluster whose every component is healthy and whose VM hangs.
func TestDemo(t *testing.T) {
	s := &stage{t: t, out: t.Output()}
	if os.Getenv("GPUCTL_DEMO") != "" {
		s.out = os.Stdout
	}
	s.say("Starting etcd, kube-apiserver, scheduler, controller manager, and KubeVirt's virt-api and",
		"virt-controller on this machine. There is no GPU, no virt-handler and no container",
		"engine: two nodes, their PCI buses and what their device plugins serve are made up, and gpuctl's own",
		"pods run as processes. Everything else is real.")
	s.c = cluster.Start(t)
	ns := s.prepare()
	vmi := s.stuckVM(ns)
	before := s.kubeVirt()
	s.lookAround()
	s.install(vmi)
	s.takeAway()
	s.upgrade()
	s.uninstall(vmi, before)
	s.title("That was it")
	s.say("bin/gpuctl install --dry-run    prints what would be installed in the cluster that your kubectl speaks to",
		"bin/gpuctl wire --dry-run       shows what would be wired there, and installs nothing")
}

// prepare adds the nodes as gpu-operator leaves them.
func (s *stage) prepare() string {
	s.c.PatchKubeVirt(table)
	passthrough := map[string]string{"nvidia.com/gpu.workload.config": "vm-passthrough", "feature.node.kubernetes.io/pci-10de.present": "true"}
	s.c.AddNode(cluster.Node{Name: "worker-1", Labels: passthrough, Root: s.host("worker-1"), Resources: map[corev1.ResourceName]int64{h200: 8}})
	s.c.AddNode(cluster.Node{Name: "worker-2", Labels: passthrough, Root: s.host("worker-2"), Resources: map[corev1.ResourceName]int64{"nvidia.com/GA102GL_RTX_A6000": 2}})
	program := filepath.Join(s.t.TempDir(), "gpuctl")
	if out, err := exec.CommandContext(s.t.Context(), "go", "build", "-o", program, "github.com/gpuctl/gpuctl/cmd/gpuctl").CombinedOutput(); err != nil {
		s.t.Fatalf("build gpuctl: %v\n%s", err, out)
	}
	s.c.RunImage("ghcr.io/gpuctl/gpuctl", program)
	return s.c.Namespace()
}

// host makes the /sys that the node's agent reads, from what lspci shows there.
func (s *stage) host(node string) string {
	file := func(name string) discover.File {
		data, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			s.t.Fatal(err)
		}
		return discover.File{Name: name, Data: data}
	}
	host, _, err := discover.FromText(discover.Pasted{Lspci: file(node + ".lspci"), IOMMU: file(node + ".iommu")})
	if err != nil {
		s.t.Fatal(err)
	}
	return fakesys.New(s.t, host)
}

func (s *stage) stuckVM(ns string) *unstructured.Unstructured {
	s.title("1  Everything is healthy, and a VM hangs")
	s.say("worker-1 serves 8 x H200. A VM asks for one:")
	vm := s.c.Create(s.c.Decode(`
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: trainer, namespace: ` + ns + `}
spec:
  runStrategy: Always
  template:
    spec:
      terminationGracePeriodSeconds: 0
      domain:
        resources: {requests: {memory: 64Mi}}
        devices: {gpus: [{name: gpu0, deviceName: ` + h200 + `}]}
`))
	vmi := s.c.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: trainer, namespace: " + ns + "}}")
	var message string
	s.c.Eventually(30*time.Second, "KubeVirt refuses the VM", func(ctx context.Context) (err error) {
		message, err = s.refusal(ctx, vmi)
		return err
	})
	s.say("", "  kubectl get vmi "+vm.GetName()+" -o jsonpath='{.status.conditions[?(@.type==\"Synchronized\")].message}'", "  "+message)
	s.say("", "KubeVirt says so in that condition only. gpuctl follows the GPU from the PCI bus to the VM, and stops",
		"at the first broken link; what comes behind it often only follows from it:")
	s.run(3, []string{"diagnose", "vm/" + vm.GetName(), "-n", ns}, "--kubeconfig", s.c.Kubeconfig())
	return vmi
}

// refusal returns KubeVirt's own words for why there is no launcher pod.
func (s *stage) refusal(ctx context.Context, vmi *unstructured.Unstructured) (string, error) {
	got, err := s.c.Resource(vmi).Get(ctx, vmi.GetName(), metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	conditions, _, _ := unstructured.NestedSlice(got.Object, "status", "conditions")
	for _, x := range conditions {
		if m := x.(map[string]any); m["type"] == "Synchronized" && m["status"] == "False" {
			return fmt.Sprint(m["message"]), nil
		}
	}
	return "", fmt.Errorf("VM %s is not refused yet", vmi.GetName())
}

func (s *stage) lookAround() {
	s.title("2  What is on the hosts?")
	s.say("lspci -nnk of both, pasted. The second RTX A6000 cannot be used: its audio function is on a",
		"host driver, in the same IOMMU group.")
	s.gpuctl("discover", "--lspci", "worker-1=testdata/worker-1.lspci", "--iommu", "worker-1=testdata/worker-1.iommu",
		"--lspci", "worker-2=testdata/worker-2.lspci", "--iommu", "worker-2=testdata/worker-2.iommu")
}

func (s *stage) install(vmi *unstructured.Unstructured) {
	s.title("3  Install gpuctl")
	s.say("A Helm release: an agent on each GPU node reports its PCI bus; a hook Job and a controller add what",
		"is missing to the KubeVirt CR and nothing else, prove by a dry run that VMs may have host devices, and",
		"wake the VM, which KubeVirt would retry after up to 16 minutes.")
	s.cluster("install", "--wait", "--set", "hook.wait=30s")
	began := time.Now()
	var pod *corev1.Pod
	s.c.Eventually(2*time.Second, "the VM has its launcher pod", func(ctx context.Context) error {
		list, err := s.c.Clientset().CoreV1().Pods(vmi.GetNamespace()).List(ctx, metav1.ListOptions{LabelSelector: "kubevirt.io=virt-launcher"})
		if err != nil || len(list.Items) == 0 {
			return fmt.Errorf("no launcher pod: %w", err)
		}
		pod = &list.Items[0]
		return nil
	})
	took := time.Since(began)
	node := s.c.RunVMI(vmi.GetNamespace(), vmi.GetName())
	amount := pod.Spec.Containers[0].Resources.Limits[h200]
	s.say("", fmt.Sprintf("%s after gpuctl ended, virt-controller had rendered %s,", took.Round(time.Millisecond), pod.Name),
		fmt.Sprintf("which asks for %s x %s; kube-scheduler put it on %s.", amount.String(), h200, node))
	if amount.Value() != 1 || node != "worker-1" {
		s.t.Errorf("the pod asks for %v and runs on %s", amount, node)
	}
	s.say("", "What the hook has found, also as an Event on the KubeVirt CR:")
	s.kubectl("-n", "gpuctl-system", "logs", "job/gpu-operator-hooks-wire")
	s.kubectl("get", "gpunodes")
	s.say("", "And the cluster on one screen. The second RTX A6000 is what is left to look at:")
	s.run(3, []string{"status"}, "--kubeconfig", s.c.Kubeconfig())
}

// kubectl runs kubectl on the cluster.
func (s *stage) kubectl(args ...string) {
	fmt.Fprintf(s.out, "\n$ kubectl %s\n", strings.Join(args, " "))
	cmd := exec.CommandContext(s.t.Context(), s.c.Binary("kubectl"), append(args, "--kubeconfig", s.c.Kubeconfig())...)
	cmd.Stdout, cmd.Stderr = s.out, s.out
	if err := cmd.Run(); err != nil {
		s.t.Errorf("kubectl %s: %v", strings.Join(args, " "), err)
	}
}

// takeAway does what a GitOps tool does that applies its own KubeVirt CR.
func (s *stage) takeAway() {
	s.title("4  Somebody takes it away")
	s.say("A chart that replaces the list, kubectl apply of a stock CR, a GitOps tool: the controller puts it back.")
	s.kubectl("-n", "kubevirt", "patch", "kubevirt", "kubevirt", "--type=merge", "-p", `{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[{"pciVendorSelector":"15B3:101E","resourceName":"mellanox.com/connectx_vf","externalResourceProvider":true}]}}}}`)
	began := time.Now()
	s.c.Eventually(5*time.Second, "the table is whole again", func(context.Context) error {
		list, _, _ := unstructured.NestedSlice(s.kubeVirt().Object, "spec", "configuration", "permittedHostDevices", "pciHostDevices")
		if len(list) != 3 {
			return fmt.Errorf("it has %d entries", len(list))
		}
		return nil
	})
	s.say("", fmt.Sprintf("Within %s it was back.", time.Since(began).Round(time.Millisecond)))
	s.kubectl("get", "gpuwiring", "cluster", "-o", "custom-columns=TARGET:.status.target,LAST REVERT BY:.status.reverts[-1:].manager,LOST:.status.reverts[-1:].lost")
}

func (s *stage) upgrade() {
	s.title("5  Upgrade it")
	s.say("The hook looks again; there is nothing to change, so it changes nothing.")
	before := s.kubeVirt().GetResourceVersion()
	s.cluster("upgrade")
	if s.kubeVirt().GetResourceVersion() != before {
		s.t.Error("the upgrade changed the KubeVirt CR")
	}
}

func (s *stage) uninstall(vmi, before *unstructured.Unstructured) {
	s.title("6  And back")
	s.say("An entry that a VM uses stays; so the VM is deleted first.")
	vm := s.c.Decode("{apiVersion: kubevirt.io/v1, kind: VirtualMachine, metadata: {name: " + vmi.GetName() + ", namespace: " + vmi.GetNamespace() + "}}")
	if err := s.c.Resource(vm).Delete(context.Background(), vm.GetName(), metav1.DeleteOptions{}); err != nil {
		s.t.Fatal(err)
	}
	s.c.Eventually(30*time.Second, "the VM is gone", func(ctx context.Context) error {
		if _, err := s.c.Resource(vmi).Get(ctx, vmi.GetName(), metav1.GetOptions{}); err == nil {
			return fmt.Errorf("VM %s is still there", vmi.GetName())
		}
		return nil
	})
	s.cluster("uninstall", "--wait")
	after := s.kubeVirt()
	same := reflect.DeepEqual(before.Object["spec"], after.Object["spec"]) &&
		reflect.DeepEqual(before.GetLabels(), after.GetLabels()) && reflect.DeepEqual(before.GetAnnotations(), after.GetAnnotations())
	if !same {
		s.t.Errorf("the KubeVirt CR was %v, is %v", before.Object, after.Object)
		return
	}
	s.say("", "The KubeVirt CR's spec, labels and annotations are what they were before.")
}

func (s *stage) kubeVirt() *unstructured.Unstructured {
	kv := s.c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}}")
	got, err := s.c.Resource(kv).Get(context.Background(), "kubevirt", metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// cluster runs gpuctl on the cluster; gpuctl runs it as it is.
func (s *stage) cluster(args ...string) { s.run(0, args, "--kubeconfig", s.c.Kubeconfig()) }

func (s *stage) gpuctl(args ...string) { s.run(0, args) }

// run runs gpuctl, which has to end with the exit code; hidden arguments are not shown.
func (s *stage) run(want int, args []string, hidden ...string) {
	fmt.Fprintf(s.out, "\n$ gpuctl %s\n", strings.Join(args, " "))
	if code := cli.Main("gpuctl", append(args, hidden...), strings.NewReader(""), s.out, s.out); code != want {
		s.t.Fatalf("gpuctl %s: exit %d, want %d", strings.Join(args, " "), code, want)
	}
}

func (s *stage) title(text string) { fmt.Fprintf(s.out, "\n== %s\n", text) }

func (s *stage) say(lines ...string) { fmt.Fprintln(s.out, strings.Join(lines, "\n")) }
