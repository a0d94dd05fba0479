package starts

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

var (
	refused  = flag.Int("refused", 50, "VMs that are refused, and try again")
	tries    = flag.Float64("tries", 5, "how many of them a second are woken to try again")
	slowdown = flag.Float64("slowdown", 1.2, "how many times as long others may take beside them")
)

// BenchmarkBesideRefused has VMs without devices start alone, and in turn beside others that
// are refused and try again: virt-controller has three workers for all.
func BenchmarkBesideRefused(b *testing.B) {
	s := newStage(b)
	s.scale(1)
	s.AddNode(cluster.Node{
		Name: "full", Labels: map[string]string{"nvidia.com/gpu.workload.config": "vm-passthrough", "feature.node.kubernetes.io/pci-10de.present": "true"},
		Resources: map[corev1.ResourceName]int64{l40s: 1},
	})
	s.Create(s.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: l40s}, spec: {resourceName: " + l40s + ", maxCount: 8}}"))
	order := s.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: taken, namespace: " + s.tenant + "}, spec: {className: l40s, count: 1}}")
	s.Eventually(patience, "the only GPU of a class is held", func(ctx context.Context) error {
		devices := s.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("gpudevices")).Namespace(s.tenant)
		u, err := devices.Get(ctx, "taken", metav1.GetOptions{})
		if err != nil {
			_, err = devices.Create(ctx, order, metav1.CreateOptions{})
			return fmt.Errorf("it is not ordered: %w", err)
		}
		if state, _, _ := unstructured.NestedString(u.Object, "status", "state"); state != string(v1alpha1.DeviceHeld) {
			return errors.New("it is " + state)
		}
		return nil
	})
	for b.Loop() {
		s.besideRefused()
	}
}

// besideRefused takes both sides in turn. A first round is not counted.
func (s *stage) besideRefused() {
	var alone, beside []float64
	for round := range 1 + *rounds {
		without, _ := s.round(false)
		s.refuse()
		began := time.Now()
		stop := s.wake()
		with, bound := s.round(false)
		stop()
		tried := 0
		for _, r := range s.Writes(began, func(string) bool { return true }) {
			if r.Verb == "create" && r.Resource == "virtualmachineinstances" && r.Code >= 300 && r.Time.Before(bound) {
				tried++
			}
		}
		if round == 0 {
			continue
		}
		alone, beside = append(alone, without), append(beside, with)
		fmt.Fprintf(os.Stderr, "round %d: %.1f ms a VM alone, %.1f beside %d that were refused %d times; load %s\n", round, without, with, *refused, tried, load())
	}
	ratio := median(beside) / median(alone)
	s.Logf("%d VMs without devices, %d rounds, ms a VM from create to bound: alone %s, beside %d that are refused %s: %.2f times", *vms, *rounds, spread(alone), *refused, spread(beside), ratio)
	s.ReportMetric(ratio, "times")
	if ratio > *slowdown {
		s.Errorf("a VM takes %.2f times as long, want at most %.2f", ratio, *slowdown)
	}
}

// wake has the refused VMs try again, in turn, until it is stopped or a VM is gone.
func (s *stage) wake() (stop func()) {
	ctx, cancel := context.WithCancel(s.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Duration(float64(time.Second) / *tries))
		defer tick.Stop()
		for i := 0; ; i++ {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"woken":"%d"}}}`, i)
			_, err := s.instances("virtualmachines").Patch(ctx, fmt.Sprintf("refused-%03d", i%*refused), types.MergePatchType, patch, metav1.PatchOptions{})
			if err != nil {
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// refuse creates VMs that are refused, and returns when each was once.
func (s *stage) refuse() {
	s.Helper()
	for i := range *refused {
		vm := s.vm(i, true)
		vm.SetName(fmt.Sprintf("refused-%03d", i))
		if err := unstructured.SetNestedField(vm.Object, `{"templates":[{"class":"l40s"}]}`, "spec", "template", "metadata", "annotations", v1alpha1.AnnotationDevices); err != nil {
			s.Fatal(err)
		}
		if _, err := s.instances("virtualmachines").Create(s.Context(), vm, metav1.CreateOptions{}); err != nil {
			s.Fatal(err)
		}
	}
	s.Eventually(patience, "all are refused", func(ctx context.Context) error {
		list, err := s.instances("virtualmachines").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		told := 0
		for i := range list.Items {
			if strings.Contains(fmt.Sprint(list.Items[i].Object["status"]), "GPU0") {
				told++
			}
		}
		if told != *refused {
			return fmt.Errorf("%d are", told)
		}
		return nil
	})
}
