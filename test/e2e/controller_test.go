package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// repair is within which time the controller has to put things right.
const repair = 5 * time.Second

const l40s = "nvidia.com/AD102GL_L40S"

// installController installs the release without the hook and the agents, and waits
// until a replica of the controller leads and has looked.
func (s *stage) installController(values ...string) {
	s.t.Helper()
	all := append([]string{"hook.enabled=false", "agent.enabled=false", "controller.leaderElection.leaseDuration=4s", "controller.leaderElection.renewDeadline=3s", "controller.leaderElection.retryPeriod=1s"}, values...)
	s.installAll("--wait", "--timeout", "60s", "--set", strings.Join(all, ","))
	s.Eventually(soon, "the controller says how it stands", func(ctx context.Context) error {
		_, err := s.wiring(ctx)
		return err
	})
}

// wiring reads the GPUWiring.
func (s *stage) wiring(ctx context.Context) (*v1alpha1.GPUWiring, error) {
	u, err := s.Dynamic().Resource(v1alpha1.GroupVersion.WithResource("gpuwirings")).Get(ctx, v1alpha1.WiringName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	var w v1alpha1.GPUWiring
	return &w, runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &w)
}

// says returns a check that a condition of the GPUWiring has a reason and a message
// with all words.
func (s *stage) says(condition, reason string, words ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		w, err := s.wiring(ctx)
		if err != nil {
			return err
		}
		is := apimeta.FindStatusCondition(w.Status.Conditions, condition)
		if is == nil || is.Reason != reason {
			return errorf("%s is %+v, want reason %s", condition, is, reason)
		}
		for _, word := range words {
			if !strings.Contains(is.Message, word) {
				return errorf("%s does not say %q: %s", condition, word, is.Message)
			}
		}
		return nil
	}
}

// leader returns the pod of the replica that leads, and under which name it does.
func (s *stage) leader() (pod *corev1.Pod, identity string) {
	s.t.Helper()
	lease, err := s.Clientset().CoordinationV1().Leases(s.namespace).Get(s.t.Context(), v1alpha1.ControllerLease, metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		s.t.Fatalf("nobody leads: %v", err)
	}
	identity = *lease.Spec.HolderIdentity
	name, _, _ := strings.Cut(identity, "_")
	if pod, err = s.Clientset().CoreV1().Pods(s.namespace).Get(s.t.Context(), name, metav1.GetOptions{}); err != nil {
		s.t.Fatalf("%s leads: %v", identity, err)
	}
	return pod, identity
}

// permits returns a check that the KubeVirt CR's PCI table has exactly the names, and
// the gate.
func (s *stage) permits(names ...string) func(context.Context) error {
	return func(ctx context.Context) error {
		got, err := s.Resource(kubeVirtRef(s.Cluster)).Get(ctx, "kubevirt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		gates, _, _ := unstructured.NestedStringSlice(got.Object, "spec", "configuration", "developerConfiguration", "featureGates")
		if have := permitted(got); !slices.Equal(have, names) || !slices.Contains(gates, "HostDevices") {
			return errorf("permitted are %v with gates %v, want %v and HostDevices", have, gates, names)
		}
		return nil
	}
}

// kubeVirtOf returns the stock KubeVirt CR, in YAML, with a configuration.
func kubeVirtOf(configuration string) string {
	return "apiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kubevirt}\nspec:\n  configuration:\n" + configuration
}

const (
	stock    = "    developerConfiguration: {featureGates: []}\n"
	othersIs = "    developerConfiguration: {featureGates: [LiveMigration]}\n    permittedHostDevices: {pciHostDevices: [{pciVendorSelector: \"8086:5845\", resourceName: devices.kubevirt.io/nvme, externalResourceProvider: %t}]}\n"
)

// helmRelease installs or upgrades a release of another chart that has the KubeVirt CR.
func (s *stage) helmRelease(manifest string) {
	s.t.Helper()
	other := &chart.Chart{
		Metadata:  &chart.Metadata{APIVersion: "v2", Name: "kubevirt-cr", Version: "1.0.0"},
		Templates: []*chart.File{{Name: "templates/kubevirt.yaml", Data: []byte(manifest)}},
	}
	upgrade := action.NewUpgrade(s.helm())
	upgrade.Namespace, upgrade.Install = s.namespace, true
	if _, err := upgrade.Run("kubevirt-cr", other, nil); err == nil {
		return
	}
	install := action.NewInstall(s.helm())
	install.Namespace, install.ReleaseName, install.TakeOwnership = s.namespace, "kubevirt-cr", true
	if _, err := install.Run(other, nil); err != nil {
		s.t.Fatal(err)
	}
}

// kubectlApply applies a manifest as kubectl does.
func (s *stage) kubectlApply(manifest string, args ...string) {
	s.t.Helper()
	file := filepath.Join(s.t.TempDir(), "manifest.yaml")
	if err := os.WriteFile(file, []byte(manifest), 0o600); err != nil {
		s.t.Fatal(err)
	}
	cmd := exec.CommandContext(s.t.Context(), s.Binary("kubectl"), append([]string{"--kubeconfig", s.Kubeconfig(), "apply", "-f", file}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		s.t.Fatalf("kubectl apply: %v\n%s", err, out)
	}
}

// A new GPU node is usable within seconds, and what others take away is put back: by a
// chart that replaces the list, by kubectl with the stock CR, by a server-side apply
// with force. Who does it again and again is named (GPU0333), and no longer answered at
// once.
func TestContestedWiring(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.helmRelease(kubeVirtOf(fmt.Sprintf(othersIs, true)))
	s.installController()
	both := s.permits("devices.kubevirt.io/nvme", h200)
	s.Eventually(repair, "it is wired", both)

	s.AddNode(gpuNode("worker-2", l40s, 2))
	s.Eventually(repair, "a new GPU node is usable", s.permits("devices.kubevirt.io/nvme", h200, l40s))
	instance := s.Create(vmi(s.Cluster, "default", "on-the-new-node", "gpus", l40s))
	t.Cleanup(func() { deleteAnyway(t, s.Cluster, instance) })
	s.Eventually(soon, "a VM starts there", pods(s.Cluster, instance, 1))

	s.helmRelease(kubeVirtOf(fmt.Sprintf(othersIs, false)))
	s.Eventually(repair, "what helm took away is back", s.permits("devices.kubevirt.io/nvme", h200, l40s))
	s.kubectlApply(kubeVirtOf(stock))
	s.Eventually(repair, "what kubectl apply took away is back", s.permits("devices.kubevirt.io/nvme", h200, l40s))
	s.kubectlApply(kubeVirtOf(fmt.Sprintf(othersIs, false)), "--server-side", "--force-conflicts", "--field-manager=gitops")
	s.Eventually(repair, "what a server-side apply took away is back", s.permits("devices.kubevirt.io/nvme", h200, l40s))
	s.Eventually(repair, "three reverts are seen, and no contest", func(ctx context.Context) error {
		w, err := s.wiring(ctx)
		if err != nil {
			return err
		}
		var who []string
		for _, r := range w.Status.Reverts {
			who = append(who, r.Manager)
		}
		if !slices.Equal(who, []string{"e2e.test", "kubectl-client-side-apply", "gitops"}) {
			return errorf("reverted by %q", who)
		}
		return s.says(v1alpha1.ConditionContested, v1alpha1.ReasonCalm)(ctx)
	})

	s.kubectlApply(kubeVirtOf(fmt.Sprintf(othersIs, true)), "--server-side", "--force-conflicts", "--field-manager=gitops")
	s.Eventually(repair, "the contest is said (GPU0333)", s.says(v1alpha1.ConditionContested, v1alpha1.ReasonReverted, "gitops", h200))
	s.Eventually(repair, "and that it is not written", s.says(v1alpha1.ConditionWired, v1alpha1.ReasonBackedOff))
	s.showsContest()
	w, err := s.wiring(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	wrote := w.Status.LastWrite.Time
	reverted := kubeVirt(t, s.Cluster).GetGeneration()
	s.Always(time.Until(wrote.Add(58*time.Second)), "nothing is written within a minute", func(context.Context) error {
		if now := kubeVirt(t, s.Cluster).GetGeneration(); now != reverted {
			return errorf("generation is %d, was %d", now, reverted)
		}
		return nil
	})
	s.Eventually(repair+2*time.Second, "it is written after a minute", s.permits("devices.kubevirt.io/nvme", h200, l40s))
}

// showsContest has the commands show a contest, and who it is that takes what away.
func (s *stage) showsContest() {
	s.t.Helper()
	_, leader := s.leader()
	pod, _, _ := strings.Cut(leader, "_")
	_, screen, _ := gpuctl(s.Cluster, "status")
	for _, line := range []string{
		`(?m)^Controller 2 of 2 ready   wired XX   led by ` + pod + `$`,
		`(?m)^ +Contested: .*gitops.* took .*` + h200 + `.* GPU0333$`,
		`(?m)^ +WiringRepaired \d+s ago: taken away by gitops, written back$`,
	} {
		if !regexp.MustCompile(line).MatchString(screen) {
			s.t.Errorf("no line %s in\n%s", line, screen)
		}
	}
	code, stdout, _ := gpuctl(s.Cluster, "diagnose", "-o", "json")
	found := findingsOf(s.t, stdout)
	if code != 3 || len(found) == 0 || found[0].Code != "GPU0333" || !strings.Contains(found[0].Message, "gitops") {
		s.t.Errorf("diagnose exits with %d and says %+v", code, found)
	}
}

// Killing the leader hands over, and no write is lost or repeated.
func TestLeaderIsKilled(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 8, "vfio-pci", 8)
	s.installController()
	s.Eventually(repair, "it is wired", s.permits(h200))
	ways := map[string]func(*corev1.Pod){
		"by SIGKILL": func(pod *corev1.Pod) { s.KillPod(pod, syscall.SIGKILL) },
		"by a deletion": func(pod *corev1.Pod) {
			if err := s.Clientset().CoreV1().Pods(s.namespace).Delete(t.Context(), pod.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, kill := range ways {
		t.Run(name, func(t *testing.T) {
			before := kubeVirt(t, s.Cluster)
			pod, first := s.leader()
			kill(pod)
			s.PatchOnce(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
			s.Eventually(20*time.Second, "another replica repairs it", s.permits(h200))
			s.Always(3*time.Second, "it is written once", func(context.Context) error {
				if got := kubeVirt(t, s.Cluster).GetGeneration(); got != before.GetGeneration()+2 {
					return errorf("%d changes, want 2", got-before.GetGeneration())
				}
				return nil
			})
			if _, now := s.leader(); now == first {
				t.Errorf("%s leads before and after", now)
			}
		})
	}
}

// PatchOnce merges a patch into the KubeVirt CR.
func (s *stage) PatchOnce(patch string) {
	s.t.Helper()
	if _, err := s.Resource(kubeVirtRef(s.Cluster)).Patch(s.t.Context(), "kubevirt", types.MergePatchType, []byte(patch), metav1.PatchOptions{FieldManager: "test"}); err != nil {
		s.t.Fatal(err)
	}
}

// What passes takes nothing away; a plugin that renames its resources does, when nobody
// uses the old name.
func TestFollowsThePlugin(t *testing.T) {
	const hexName = "nvidia.com/2335"
	s := newStage(t)
	s.AddNode(gpuNode("worker-1", hexName, 2))
	s.AddNode(gpuNode("worker-2", hexName, 2))
	s.installController("controller.staleAfter=2s", "controller.resync=2s")
	s.Eventually(repair, "it is wired", s.permits(hexName))
	vm := machine(s.Cluster, "default", "stopped", entries("gpus", hexName, 1))
	if err := unstructured.SetNestedField(vm.Object, "Halted", "spec", "runStrategy"); err != nil {
		t.Fatal(err)
	}
	s.Create(vm)
	t.Cleanup(func() { deleteAnyway(t, s.Cluster, vm) })

	serve := func(name string, amount int64) {
		for _, node := range []string{"worker-1", "worker-2"} {
			s.SetAllocatable(node, corev1.ResourceName(name), amount)
		}
	}
	serve(hexName, 0) // a reboot, a plugin or a vfio-manager that starts again
	s.Always(6*time.Second, "zero takes nothing away", s.permits(hexName))

	s.SetAllocatable("worker-1", h200, 2)
	s.Eventually(repair, "the new name is permitted", s.permits(hexName, h200))
	s.Always(6*time.Second, "the other node has not moved on", s.permits(hexName, h200))
	s.SetAllocatable("worker-2", h200, 2)
	s.Always(6*time.Second, "a VM uses the old name", s.permits(hexName, h200))
	deleteAnyway(t, s.Cluster, vm)
	s.Eventually(soon, "the old name goes with its last user", s.permits(h200))
}
