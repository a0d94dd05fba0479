package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubevirt "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// race is how many VMs race for how many GPUs, while leaders are killed.
type race struct {
	vms, gpus, kills int
	// limit is until all winners run, and until nothing is left. What a replica that is
	// killed had taken for starts is given back after 45 s.
	limit time.Duration
}

// raceOf is a small race, unless GPUCTL_RACE says "full".
func raceOf(t *testing.T) race {
	t.Helper()
	switch text := os.Getenv("GPUCTL_RACE"); text {
	case "":
		return race{vms: 40, gpus: 20, kills: 2, limit: 90 * time.Second}
	case "full":
		return race{vms: 200, gpus: 100, kills: 5, limit: 5 * time.Minute}
	default:
		t.Fatalf("GPUCTL_RACE is %q, want full or nothing", text)
		return race{}
	}
}

// VMs that race for too few GPUs, over three replicas whose leader is killed again and
// again, end with each GPU in use once, and with every loser told why.
func TestRace(t *testing.T) {
	r := raceOf(t)
	m := newMarketOf(t, r.gpus, "controller.replicas=3")
	t.Cleanup(m.stopsAll)
	m.Script(func(pod *corev1.Pod) cluster.Outcome {
		if pod.Labels["kubevirt.io"] != "virt-launcher" {
			return cluster.Outcome{}
		}
		return cluster.Outcome{Phase: corev1.PodRunning}
	})
	given := m.watchGiven()
	began := time.Now()
	kills := make(chan string, 1)
	go func() { kills <- m.killsLeaders(r.kills) }()
	m.createsAll(r.vms)
	created := time.Since(began)
	if problem := <-kills; problem != "" {
		t.Fatal(problem)
	}
	killed := time.Since(began)
	m.Eventually(r.limit, "all winners run", func(ctx context.Context) error { return m.winners(ctx, r.gpus) })
	t.Logf("%d VMs for %d GPUs: created after %s, %d leaders killed after %s, all winners run after %s",
		r.vms, r.gpus, created.Round(time.Millisecond), r.kills, killed.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	m.Eventually(r.limit, "every loser is told why", func(ctx context.Context) error { return m.losers(ctx, r.vms-r.gpus) })
	m.Always(3*time.Second, "nobody else starts", func(ctx context.Context) error { return m.winners(ctx, r.gpus) })

	began = time.Now()
	err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachines")).Namespace(m.acme).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m.Eventually(r.limit, "nothing is left", m.nothingIsLeft)
	t.Logf("nothing is left %s after all were deleted", time.Since(began).Round(time.Millisecond))
	if n, most := given(); n < r.gpus || most > r.gpus {
		t.Errorf("%d times units were given, at most %d at a time, want at least %d and at most as many", n, most, r.gpus)
	}
}

// newMarketOf is a market whose nodes have so many GPUs together.
func newMarketOf(t *testing.T, gpus int, values ...string) *market {
	t.Helper()
	m := &market{stage: newStage(t)}
	for ; gpus > 0; gpus -= 8 {
		name := fmt.Sprintf("worker-%d", len(m.nodes)+1)
		m.nodes = append(m.nodes, name)
		m.node(name, min(gpus, 8), "vfio-pci", int64(min(gpus, 8)))
	}
	began := time.Now()
	m.installController(append(values, "orders.enabled=true")...)
	t.Logf("installed after %s", time.Since(began).Round(time.Millisecond))
	m.serve(m.webhookService(), webhookPort)
	m.class("h200", "{resourceName: "+h200+", maxCount: 8}")
	m.acme = m.tenant()
	m.edit = m.orderer(m.member(m.acme, "edit"), m.acme)
	return m
}

// createsAll creates VMs of one GPU each, some at a time.
func (m *market) createsAll(n int) {
	m.t.Helper()
	var all sync.WaitGroup
	var next atomic.Int64
	for range 8 {
		all.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				vm := m.vm(fmt.Sprintf("racer-%03d", i), `{"templates":[{"class":"h200"}]}`)
				if _, err := m.vms("virtualmachines").Create(m.t.Context(), vm, metav1.CreateOptions{}); err != nil {
					m.t.Errorf("create %s: %v", vm.GetName(), err)
				}
			}
		})
	}
	all.Wait()
}

// killsLeaders kills whoever leads, and whoever leads next. It says what went wrong.
func (m *market) killsLeaders(n int) string {
	for range n {
		time.Sleep(500 * time.Millisecond)
		pod, was := m.leader()
		m.KillPod(pod, syscall.SIGKILL)
		led := func() bool {
			lease, err := m.Clientset().CoordinationV1().Leases(m.namespace).Get(m.t.Context(), v1alpha1.ControllerLease, metav1.GetOptions{})
			return err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" && *lease.Spec.HolderIdentity != was
		}
		for end := time.Now().Add(soon); !led(); time.Sleep(50 * time.Millisecond) {
			if time.Now().After(end) {
				return fmt.Sprintf("nobody leads %s after %s was killed", soon, was)
			}
		}
	}
	return ""
}

// watchGiven follows the devices in the order of their changes, and fails the test when a
// node gives more than it serves. The function returns how often units were given, and how
// many at most at a time.
func (m *market) watchGiven() func() (given, most int) {
	t := m.t
	t.Helper()
	devices := m.Dynamic().Resource(gpuDevices)
	list, err := devices.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	w, err := devices.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		cancel()
		t.Fatal(err)
	}
	var given, most int
	done := make(chan struct{})
	go func() {
		defer close(done)
		known := map[string]*v1alpha1.GPUDevice{}
		for e := range w.ResultChan() {
			object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(e.Object)
			d := &v1alpha1.GPUDevice{}
			if err = errors.Join(err, runtime.DefaultUnstructuredConverter.FromUnstructured(object, d)); err != nil || d.UID == "" {
				if ctx.Err() == nil {
					t.Errorf("the history ends: %v, %+v", err, e.Object)
				}
				return
			}
			before := known[string(d.UID)]
			if known[string(d.UID)] = d; e.Type == "DELETED" {
				delete(known, string(d.UID))
			} else if d.Status.HoldsUnits() && (before == nil || !before.Status.HoldsUnits()) {
				given++
			}
			if err := m.fair(known, 8); err != nil {
				t.Error(err)
			}
			held := 0
			for _, d := range known {
				if d.Status.HoldsUnits() {
					held++
				}
			}
			most = max(most, held)
		}
	}()
	stop := sync.OnceFunc(func() {
		cancel()
		<-done
	})
	t.Cleanup(stop)
	return func() (int, int) {
		stop()
		return given, most
	}
}

// winners reports when not exactly so many VMs run, each with a device of its own on the
// launcher's node.
func (m *market) winners(ctx context.Context, want int) error {
	list, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachineinstances")).Namespace(m.acme).List(ctx, metav1.ListOptions{})
	devices, err2 := m.devices(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	has := map[string]string{} // the node of what a VMI has, by its UID
	for _, d := range devices {
		a := d.Status.Attachment
		if a == nil || a.VMIUID == "" {
			continue
		}
		if has[string(a.VMIUID)] != "" {
			return errorf("VMI %s has two devices", a.VMIName)
		}
		has[string(a.VMIUID)] = d.Status.Placement.Node
	}
	running := 0
	for i := range list.Items {
		v := &kubevirt.VirtualMachineInstance{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(list.Items[i].Object, v); err != nil {
			return err
		}
		switch node := has[string(v.UID)]; {
		case v.Status.Phase != kubevirt.Running:
		case node == "" || node != v.Status.NodeName:
			return errorf("VMI %s runs on %s, and what it has is on %q", v.Name, v.Status.NodeName, node)
		default:
			running++
		}
	}
	if running != want || len(list.Items) != want {
		return errorf("%d of %d VMIs run, want %d", running, len(list.Items), want)
	}
	return m.fair(devices, 8)
}

// told is how a refusal reads that gpuctl has said.
var told = regexp.MustCompile(`denied the request: GPU0(705|710|711|712): `)

// losers reports VMs without a VMI that were not told by gpuctl why.
func (m *market) losers(ctx context.Context, want int) error {
	vms, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource("virtualmachines")).Namespace(m.acme).List(ctx, metav1.ListOptions{})
	events, err2 := m.Clientset().CoreV1().Events(m.acme).List(ctx, metav1.ListOptions{FieldSelector: "reason=FailedCreate"})
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	said := map[string]bool{}
	for i := range events.Items {
		if e := &events.Items[i]; told.MatchString(e.Message) && strings.Contains(e.Message, "GPU0705") {
			said[e.InvolvedObject.Name] = true
		}
	}
	untold := []string{}
	losers := 0
	for i := range vms.Items {
		name := vms.Items[i].GetName()
		if _, err := m.instance(ctx, name); err == nil {
			continue
		}
		losers++
		if text := m.failure(ctx, name); !told.MatchString(text) && !said[name] {
			untold = append(untold, name+": "+text)
		}
	}
	slices.Sort(untold)
	if losers != want || len(untold) > 0 {
		return errorf("%d losers, want %d; %d of them are not told why: %.500q", losers, want, len(untold), untold)
	}
	return nil
}

// nothingIsLeft reports VMs, VMIs, launchers and devices.
func (m *market) nothingIsLeft(ctx context.Context) error {
	left := []string{}
	for _, resource := range []string{"virtualmachines", "virtualmachineinstances"} {
		list, err := m.Dynamic().Resource(kubevirt.GroupVersion.WithResource(resource)).Namespace(m.acme).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		left = append(left, fmt.Sprintf("%d %s", len(list.Items), resource))
	}
	pods, err := m.Clientset().CoreV1().Pods(m.acme).List(ctx, metav1.ListOptions{})
	devices, err2 := m.devices(ctx)
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	left = append(left, fmt.Sprintf("%d pods", len(pods.Items)), fmt.Sprintf("%d devices", len(devices)))
	if slices.ContainsFunc(left, func(line string) bool { return !strings.HasPrefix(line, "0 ") }) {
		return errorf("there are %s", strings.Join(left, ", "))
	}
	return nil
}
