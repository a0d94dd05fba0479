package starts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

var (
	gpuctl = flag.String("gpuctl", "../../../bin/gpuctl", "the gpuctl binary to run")
	vms    = flag.Int("vms", 100, "VMs of one GPU that start together")
	rounds = flag.Int("rounds", 5, "timed rounds of each side")
	most   = flag.Float64("most", 40, "how many ms a VM may take more")
)

const (
	h200     = "nvidia.com/GH100_H200_SXM_141GB"
	l40s     = "nvidia.com/AD102GL_L40S"
	system   = "gpu-system"
	release  = "gpu-operator-hooks-controller"
	service  = "gpu-operator-hooks-webhook"
	image    = "ghcr.io/gpuctl/gpuctl"
	perNode  = 8
	patience = 5 * time.Minute
)

// stage is a cluster with nodes for the VMs, wired.
type stage struct {
	*cluster.Cluster
	*testing.B
	tenant string
}

// BenchmarkStarts has VMs start with devices that gpuctl makes for them, and in turn by the
// names of what they want, while gpuctl does not run: from the first create until all
// launchers are on nodes.
func BenchmarkStarts(b *testing.B) {
	s := newStage(b)
	for b.Loop() {
		s.compare()
	}
}

func newStage(b *testing.B) *stage {
	b.Helper()
	path, err := filepath.Abs(*gpuctl)
	if err != nil {
		b.Fatal(err)
	}
	s := &stage{Cluster: cluster.Start(b, cluster.WithAudit()), B: b}
	s.RunImage(image, path)
	for left := *vms; left > 0; left -= perNode {
		s.AddNode(cluster.Node{
			Name: fmt.Sprintf("worker-%d", left), Labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-passthrough", "feature.node.kubernetes.io/pci-10de.present": "true"},
			Resources: map[corev1.ResourceName]int64{h200: perNode},
		})
	}
	cmd := exec.CommandContext(b.Context(), path, "install", "--kubeconfig", s.Kubeconfig(), "-n", system, "--wait",
		"--set", "hook.enabled=false,agent.enabled=false,orders.enabled=true,controller.replicas=1")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + b.TempDir()}
	if output, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("install: %v\n%s", err, output)
	}
	s.Create(s.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: " + h200 + ", maxCount: 8}}"))
	s.tenant = s.Namespace()
	s.Eventually(patience, "the table has what nodes serve", func(ctx context.Context) error {
		kv, err := s.Dynamic().Resource(schema.GroupVersionResource{Group: "kubevirt.io", Version: "v1", Resource: "kubevirts"}).Namespace("kubevirt").Get(ctx, "kubevirt", metav1.GetOptions{})
		if err == nil && !strings.Contains(fmt.Sprint(kv.Object["spec"]), h200) {
			err = errors.New("it has not")
		}
		return err
	})
	return s
}

// compare takes both sides in turn. A first round is not counted.
func (s *stage) compare() {
	var with, without []float64
	starts, ends := tally{}, tally{}
	for round := range 1 + *rounds {
		s.scale(0)
		raw, _ := s.round(false)
		s.scale(1)
		began := time.Now()
		own, bound := s.round(true)
		if round == 0 {
			continue
		}
		with, without = append(with, own), append(without, raw)
		for _, r := range s.Writes(began, func(user string) bool { return user == "system:serviceaccount:"+system+":"+release }) {
			if r.Time.Before(bound) {
				starts.add(r)
			} else {
				ends.add(r)
			}
		}
		fmt.Fprintf(os.Stderr, "round %d: %.1f ms a VM with devices, %.1f by names; load %s\n", round, own, raw, load())
	}
	more := median(with) - median(without)
	s.Logf("%d VMs of 1 GPU, %d rounds, ms a VM from create to bound: with devices %s, by names without gpuctl %s: %.1f more", *vms, *rounds, spread(with), spread(without), more)
	s.Logf("writes of gpuctl for each of %d starts (n = 1, t = 1: 3n + t + 1/b = 4 + 1/b):%s", *vms**rounds, starts.per(*vms**rounds))
	s.Logf("and for the end of each (a release, a delete, a finalizer):%s", ends.per(*vms**rounds))
	s.ReportMetric(more, "ms/VM-more")
	if more > *most {
		s.Errorf("a VM takes %.1f ms more, want at most %.1f", more, *most)
	}
}

// scale has the controller run or not, and the webhooks' Service reach it.
func (s *stage) scale(replicas int) {
	s.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	if _, err := s.Clientset().AppsV1().Deployments(system).Patch(s.Context(), release, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		s.Fatal(err)
	}
	s.Eventually(patience, fmt.Sprintf("%d controllers run", replicas), func(ctx context.Context) error {
		pods, err := s.Clientset().CoreV1().Pods(system).List(ctx, metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=controller"})
		if err != nil || len(pods.Items) != replicas {
			return fmt.Errorf("there are %d: %w", len(pods.Items), err)
		}
		if replicas > 0 {
			pod := &pods.Items[0]
			if !slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
				return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
			}) {
				return fmt.Errorf("%s is not ready", pod.Name)
			}
			s.Expose(system+"/"+service, net.JoinHostPort(pod.Status.PodIP, "9443"))
			return s.leads(ctx, pod.Name)
		}
		return nil
	})
	time.Sleep(time.Second) // what it begins with
}

// leads reports that a pod leads, and judges VMIs.
func (s *stage) leads(ctx context.Context, pod string) error {
	lease, err := s.Clientset().CoordinationV1().Leases(system).Get(ctx, v1alpha1.ControllerLease, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if lease.Spec.HolderIdentity == nil || !strings.HasPrefix(*lease.Spec.HolderIdentity, pod) {
		return fmt.Errorf("%s does not lead", pod)
	}
	vm := s.vm(0, true).Object["spec"].(map[string]any)["template"].(map[string]any)
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": vm["metadata"], "spec": vm["spec"]}}
	u.SetName("probe")
	u.SetNamespace(s.tenant)
	_, err = s.instances("virtualmachineinstances").Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	return err
}

// round starts the VMs, and ends them. It returns ms a VM, and when all were on nodes.
func (s *stage) round(devices bool) (each float64, at time.Time) {
	s.Helper()
	began := time.Now()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(*vms); i = next.Add(1) {
				if _, err := s.instances("virtualmachines").Create(s.Context(), s.vm(int(i), devices), metav1.CreateOptions{}); err != nil {
					s.Error(err)
				}
			}
		})
	}
	all.Wait()
	s.Eventually(patience, "all launchers are on nodes", func(ctx context.Context) error {
		pods, err := s.Clientset().CoreV1().Pods(s.tenant).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
		bound := 0
		if err == nil {
			for i := range pods.Items {
				if pods.Items[i].Spec.NodeName != "" {
					bound++
				}
			}
		}
		if err != nil || bound != *vms {
			return fmt.Errorf("%d are: %w", bound, err)
		}
		return nil
	})
	at = time.Now()
	s.clear()
	return float64(at.Sub(began)) / float64(time.Millisecond) / float64(*vms), at
}

// clear deletes all VMs, and waits until nothing is left of them.
func (s *stage) clear() {
	s.Helper()
	if err := s.instances("virtualmachines").DeleteCollection(s.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		s.Fatal(err)
	}
	s.Eventually(patience, "nothing is left", func(ctx context.Context) error {
		pods, err := s.Clientset().CoreV1().Pods(s.tenant).List(ctx, metav1.ListOptions{})
		instances, err2 := s.instances("virtualmachineinstances").List(ctx, metav1.ListOptions{})
		machines, err4 := s.instances("virtualmachines").List(ctx, metav1.ListOptions{})
		made, err3 := s.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).List(ctx, metav1.ListOptions{LabelSelector: v1alpha1.LabelTemplateDevice})
		if err := errors.Join(err, err2, err3, err4); err != nil {
			return err
		}
		if n := len(pods.Items) + len(instances.Items) + len(machines.Items) + len(made.Items); n > 0 {
			return fmt.Errorf("%d objects are", n)
		}
		return nil
	})
}
