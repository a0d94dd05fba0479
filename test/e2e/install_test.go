package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/cluster"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

const image = "ghcr.io/gpuctl/gpuctl"

var gpuNodes = schema.GroupVersionResource{Group: "gpuctl.dev", Version: "v1alpha1", Resource: "gpunodes"}

// binaryDir is where binary is; TestMain removes it.
var binaryDir = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "gpuctl-e2e-*") })

// binary builds gpuctl once, as the image has it.
var binary = sync.OnceValues(func() (string, error) {
	dir, err := binaryDir()
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "gpuctl")
	out, err := exec.Command("go", "build", "-o", path, "github.com/gpuctl/gpuctl/cmd/gpuctl").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build gpuctl: %w\n%s", err, out)
	}
	return path, nil
})

// stage is a cluster on which a release can be installed: its pods run.
type stage struct {
	*cluster.Cluster
	t         *testing.T
	namespace string // it enforces the Pod Security Standard "restricted"
	release   string
	began     time.Time
	roots     map[string]string // of the nodes' hosts
}

func newStage(t *testing.T) *stage {
	t.Helper()
	return stageOn(t, shared.For(t))
}

func stageOn(t *testing.T, c *cluster.Cluster) *stage {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	unwired(c)
	noInstances(c)
	c.RunImage(image, path)
	c.AddNode(cluster.Node{Name: "untainted"}) // where the hook's pod can go
	s := &stage{Cluster: c, t: t, namespace: strings.ToLower(strings.NewReplacer("/", "-", "_", "-", ",", "").Replace(t.Name())), release: "gpu-operator-hooks", began: time.Now(), roots: map[string]string{}}
	t.Cleanup(s.clean)
	_, err = c.Clientset().CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: s.namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// clean removes a release that the test has left, its namespace and the CRDs.
func (s *stage) clean() {
	_, _, _ = gpuctl(s.Cluster, "uninstall", "--timeout", "20s", "-n", s.namespace, "--release-name", s.release)
	err := s.Clientset().CoreV1().Namespaces().Delete(context.Background(), s.namespace, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		s.t.Error(err)
	}
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	for _, crd := range []string{"gpunodes.gpuctl.dev", "gpuwirings.gpuctl.dev", "gpuclasses.gpuctl.dev", "gpudevices.gpuctl.dev"} {
		err = s.Dynamic().Resource(crds).Delete(context.Background(), crd, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			s.t.Error(err)
		}
		s.Eventually(soon, crd+" is gone", func(ctx context.Context) error {
			_, err := s.Dynamic().Resource(crds).Get(ctx, crd, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
	}
}

// node adds a node that NFD has labelled, with that many H200 on a driver, of which
// the device plugin serves some.
func (s *stage) node(name string, cards int, driver gpu.Driver, served int64) {
	s.t.Helper()
	n := gpuNode(name, h200, served)
	n.Labels["feature.node.kubernetes.io/pci-10de.present"] = "true"
	n.Taints = []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
	var h gpu.Host
	for i := range cards {
		h.Functions = append(h.Functions, gpu.Function{
			Address: gpu.Address{Bus: uint8(0x10 + i)}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: driver, Group: gpu.InGroup(i),
		})
	}
	n.Root = fakesys.New(s.t, h)
	s.roots[name] = n.Root
	s.AddNode(n)
}

// bind binds all cards of a node to a driver, or to none.
func (s *stage) bind(node, driver string) {
	s.t.Helper()
	cards, err := filepath.Glob(filepath.Join(s.roots[node], "sys/bus/pci/devices/*"))
	if err != nil || len(cards) == 0 {
		s.t.Fatalf("node %s has %d cards: %v", node, len(cards), err)
	}
	for _, card := range cards {
		link := filepath.Join(card, "driver")
		if err := os.Remove(link); err != nil && !os.IsNotExist(err) {
			s.t.Fatal(err)
		}
		if driver == "" {
			continue
		}
		if err := os.Symlink(filepath.Join(s.roots[node], "sys/bus/pci/drivers", driver), link); err != nil {
			s.t.Fatal(err)
		}
	}
}

// gpuctl runs a command on the release.
func (s *stage) gpuctl(args ...string) (code int, stdout, stderr string) {
	s.t.Helper()
	began := time.Now()
	code, stdout, stderr = gpuctl(s.Cluster, append(args, "-n", s.namespace, "--release-name", s.release)...)
	s.t.Logf("gpuctl %s: exit %d after %s\n%s", strings.Join(args, " "), code, time.Since(began).Round(time.Millisecond), stderr)
	return code, stdout, stderr
}

// install installs the release without the controller, which would do what the hook
// does: see installController.
func (s *stage) install(args ...string) {
	s.t.Helper()
	s.installAll(append([]string{"--set", "controller.enabled=false"}, args...)...)
}

func (s *stage) installAll(args ...string) {
	s.t.Helper()
	if code, _, _ := s.gpuctl(append([]string{"install"}, args...)...); code != 0 {
		pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{})
		for i := range pods.Items {
			s.t.Logf("pod %s is %+v", pods.Items[i].Name, pods.Items[i].Status)
		}
		s.t.Fatalf("install: exit %d; pods: %v", code, err)
	}
}

// hook returns the log and the termination message of the hook's last pod.
func (s *stage) hook(job string) (log, message string) {
	s.t.Helper()
	pods, err := s.Clientset().CoreV1().Pods(s.namespace).List(s.t.Context(), metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + s.release + "-" + job})
	if err != nil || len(pods.Items) == 0 {
		s.t.Fatalf("the hook has %d pods: %v", len(pods.Items), err)
	}
	pod := &pods.Items[len(pods.Items)-1]
	data, err := s.Clientset().CoreV1().Pods(s.namespace).GetLogs(pod.Name, &corev1.PodLogOptions{}).DoRaw(s.t.Context())
	if err != nil {
		s.t.Fatal(err)
	}
	if t := pod.Status.ContainerStatuses[0].State.Terminated; t != nil {
		message = t.Message
	}
	return string(data), message
}

// events returns the reasons of the release's Events on the KubeVirt CR, and what
// one of them says.
func (s *stage) events() (reasons []string, note string) {
	s.t.Helper()
	list, err := s.Clientset().EventsV1().Events("kubevirt").List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.ReportingController == "gpuctl.dev/wire" && strings.HasPrefix(e.Note, "release "+s.release) && e.EventTime.After(s.began) {
			reasons, note = append(reasons, e.Reason), e.Note
		}
	}
	return reasons, note
}

// The product's shape: install, and a VM's pod is scheduled; upgrade, and nothing
// changes; uninstall, and the KubeVirt CR is as it was.
func TestInstallUpgradeUninstall(t *testing.T) {
	s := newStage(t)
	before := kubeVirt(t, s.Cluster)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.node("worker-2", 2, "nvidia", 0)
	s.installAll("--wait", "--timeout", "60s", "--set", "hook.wait=20s")
	if got := permitted(kubeVirt(t, s.Cluster)); !slices.Equal(got, []string{h200}) {
		t.Fatalf("permitted %v", got)
	}
	log, message := s.hook("wire")
	for _, want := range []string{"worker-1: 8 of 8 GPUs usable", "worker-2: 0 of 2 GPUs usable; GPU is on a host driver: 0000:10:00.0, 0000:11:00.0 (GPU0201)"} {
		if !strings.Contains(message, want) {
			t.Errorf("the termination message lacks %q:\n%s", want, message)
		}
	}
	if !strings.Contains(log, "worker-1  8     8       8 x "+h200) {
		t.Errorf("the Job's log is\n%s", log)
	}
	// The controller may have been the first.
	if reasons, note := s.events(); !slices.Contains(reasons, "Wired") && !slices.Contains(reasons, "WiringChecked") || !strings.Contains(note, "worker-1: 8 of 8") {
		t.Errorf("Events %v, the last: %s", reasons, note)
	}
	ns := s.Namespace()
	u := vmi(s.Cluster, ns, "trainer", "gpus", h200)
	u.Object["spec"].(map[string]any)["tolerations"] = []any{map[string]any{"operator": "Exists"}}
	vm := s.Create(u)
	if node := s.RunVMI(ns, "trainer"); node != "worker-1" {
		t.Errorf("the VM runs on %s", node)
	}
	deleteAnyway(t, s.Cluster, vm)

	nodes := s.inventories()
	same := untouched(t, s.Cluster)
	if code, _, stderr := s.gpuctl("upgrade"); code != 0 {
		t.Fatalf("upgrade: %s", stderr)
	}
	same()
	if after := s.inventories(); fmt.Sprint(after) != fmt.Sprint(nodes) {
		t.Errorf("GPUNodes were %v, are %v", nodes, after)
	}
	if code, _, stderr := s.gpuctl("install"); code != 1 || !strings.Contains(stderr, "gpuctl upgrade") {
		t.Errorf("install again: exit %d\n%s", code, stderr)
	}
	if code, _, stderr := s.gpuctl("uninstall", "--wait"); code != 0 {
		t.Fatalf("uninstall: %s", stderr)
	}
	after := kubeVirt(t, s.Cluster)
	if fmt.Sprint(before.Object["spec"]) != fmt.Sprint(after.Object["spec"]) || fmt.Sprint(before.GetAnnotations()) != fmt.Sprint(after.GetAnnotations()) {
		t.Errorf("the KubeVirt CR was %v, is %v", before.Object, after.Object)
	}
	if left := s.inventories(); len(left) != 2 {
		t.Errorf("GPUNodes after the uninstall: %v", left)
	}
	if code, _, stderr := s.gpuctl("uninstall"); code != 1 || !strings.Contains(stderr, "no such release") {
		t.Errorf("uninstall again: exit %d\n%s", code, stderr)
	}
	// A GPUNode goes with its Node.
	s.RemoveNode("worker-2")
	s.Eventually(soon, "the GPUNode is gone", func(context.Context) error {
		if left := s.inventories(); len(left) != 1 {
			return fmt.Errorf("there are %v", left)
		}
		return nil
	})
}

// inventories returns the resource version of each GPUNode.
func (s *stage) inventories() map[string]string {
	s.t.Helper()
	list, err := s.Dynamic().Resource(gpuNodes).List(s.t.Context(), metav1.ListOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range list.Items {
		out[u.GetName()] = u.GetResourceVersion()
	}
	return out
}
