package bind

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// logs are what a binder has logged.
type logs struct {
	mu    sync.Mutex
	lines []string
}

func (l *logs) logger(t *testing.T, name string) logr.Logger {
	t.Helper()
	return funcr.New(func(_, text string) {
		l.mu.Lock()
		l.lines = append(l.lines, text)
		l.mu.Unlock()
		t.Log(name, text)
	}, funcr.Options{})
}

// logged returns the lines that have a text in them.
func (l *logs) logged(text string) (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			out = append(out, line)
		}
	}
	return out
}

// hosts has a node of a zone serve so many H200s, and have so many CPUs.
func (w *world) hosts(name, zone string, units, cpus int64) {
	w.Helper()
	w.serves(name, units)
	n := &corev1.Node{}
	w.must(admin.Get(w.Context(), client.ObjectKey{Name: name}, n))
	n.Labels, n.Spec.Taints = map[string]string{"zone": zone}, nil // the API server taints what is new
	w.must(admin.Update(w.Context(), n))
	n.Status.Allocatable["cpu"], n.Status.Allocatable["pods"] = *resource.NewQuantity(cpus, resource.DecimalSI), resource.MustParse("10")
	n.Status.Capacity = n.Status.Allocatable
	w.must(admin.Status().Update(w.Context(), n))
}

// needs is what a launcher needs: CPUs, on nodes of a zone unless that is "".
func needs(cpus int, zone string) string {
	selector := ""
	if zone != "" {
		selector = fmt.Sprintf(`"nodeSelector":{"zone":%q},`, zone)
	}
	return fmt.Sprintf(`{%s"containers":[{"name":"compute","resources":{"requests":{"cpu":"%d"}}}]}`, selector, cpus)
}

func request(n int) string { return fmt.Sprintf("%032x", n) }

// unbinds takes a start back, as its webhook does.
func (w *world) unbinds(name string) {
	w.Helper()
	d := w.get(name)
	d.Status.Attachment, d.Status.BindRequest = nil, nil
	d.Status.State = d.Status.Derive()
	w.must(admin.Status().Update(w.Context(), d))
}

// A set goes where its launcher can run: not where there is no CPU for it, be it that of a
// pod, and not where its device is, if that is not such a node.
func TestBinderPassesByWhereNoLauncherCanRun(t *testing.T) {
	w := newWorld(t)
	w.class("h200")
	w.hosts("n1", "a", 4, 8)
	r := w.replica("a")
	w.order("a", 1)
	w.order("b", 1)
	w.soon(map[string]string{"a": "Held n1", "b": "Held n1"})
	w.hosts("n2", "b", 8, 8)
	w.asksFor(needs(8, ""), request(1), "a")
	w.answered([]string{"n1"}, "a")
	w.unbinds("a")
	w.soon(map[string]string{"a": "Held n1"})

	account, no := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "default"}}, false
	w.must(admin.Create(t.Context(), account))
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: w.ns, Name: "other"},
		Spec: corev1.PodSpec{NodeName: "n1", AutomountServiceAccountToken: &no, Containers: []corev1.Container{{Name: "c", Image: "none", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}}},
	}
	w.must(admin.Create(t.Context(), pod))
	t.Cleanup(func() { w.must(admin.Delete(context.Background(), pod, client.GracePeriodSeconds(0))) })
	r.seen(w, "n1", 7)
	w.asksFor(needs(8, ""), request(2), "a")
	w.answered([]string{"n2"}, "a")
	w.soon(map[string]string{"a": "Bound n2"})
	w.asksFor(needs(1, "b"), request(3), "b")
	w.answered([]string{"GPU0704"}, "b") // n2 has no CPU left
	w.unbinds("b")
	w.unbinds("a")
	w.asksFor(needs(1, "b"), request(4), "b")
	w.answered([]string{"n2"}, "b")
	w.soon(map[string]string{"b": "Bound n2"})
}

// verdict is what the replica says of a launcher on a node.
func (r *replica) verdict(w *world, node, launcher string) (v alloc.Verdict) {
	w.Helper()
	spec, err := cluster.ReadLauncher(launcher)
	w.must(err)
	r.Feed.View(func(_ *books.Books, view cluster.View) { v = view.Room().Fits(spec, nil)(node) })
	return v
}

// seen waits until a replica knows that no launcher with more CPUs has room on a node.
func (r *replica) seen(w *world, node string, cpus int) {
	w.Helper()
	w.cluster.Eventually(placed, "the pod is seen", func(context.Context) error {
		if v := r.verdict(w, node, needs(cpus+1, "")); v == "" {
			return fmt.Errorf("%s has room for %d CPUs", node, cpus+1)
		}
		return nil
	})
}

// Of two sets that need the last CPUs of the only node one has them, whether they ask at
// once or one after the other; and the other one has them when the first one gives up.
func TestBinderGivesLastCPUOnce(t *testing.T) {
	for name, together := range map[string]bool{"at once": true, "one after the other": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.class("h200")
			w.hosts("n1", "a", 8, 4)
			r := w.replica("a")
			for _, name := range []string{"a", "b", "c"} {
				w.order(name, 1)
			}
			w.soon(map[string]string{"a": "Held n1", "b": "Held n1", "c": "Held n1"})
			if together {
				r.ends()
			}
			w.asksFor(needs(3, ""), request(1), "a")
			if !together {
				w.answered([]string{"n1"}, "a")
			}
			w.asksFor(needs(3, ""), request(2), "b", "c")
			if together {
				w.replica("b")
			}
			lowest := map[bool][]string{true: {"n1", "GPU0704", ""}, false: {"n1", "", "GPU0704"}}[w.get("b").UID < w.get("c").UID]
			w.answered(lowest, "a", "b", "c")
			w.unbinds("a")
			w.unbinds("b")
			w.unbinds("c")
			w.asksFor(needs(3, ""), request(3), "b", "c")
			w.answered([]string{"n1", "n1"}, "b", "c")
		})
	}
}

// A held device is moved to where the launcher can run; where that has no units the start
// is refused, and who operates reads both nodes.
func TestBinderMovesToWhereTheVolumeIs(t *testing.T) {
	w := newWorld(t)
	w.class("h200")
	w.hosts("far-b", "b", 4, 8)
	r := w.replica("a")
	w.order("moves", 2)
	w.order("stays", 1)
	w.soon(map[string]string{"moves": "Held far-b", "stays": "Held far-b"})
	w.hosts("near-a", "a", 2, 8)
	w.asksFor(needs(1, "a"), request(1), "moves")
	w.answered([]string{"near-a"}, "moves")
	w.soon(map[string]string{"moves": "Bound near-a", "stays": "Held far-b"})

	w.asksFor(needs(1, "a"), request(2), "stays")
	w.answered([]string{"GPU0704"}, "stays")
	d := w.get("stays")
	if got := d.Status.BindRequest.Answer.Refusal.Message; strings.Contains(got, "far-b") || strings.Contains(got, "near-a") || !strings.Contains(got, "node selector or affinity does not match") {
		t.Errorf("the tenant reads: %s", got)
	}
	w.cluster.Eventually(placed, "the refusal is logged", func(context.Context) error {
		lines := r.logged("a start is refused")
		if len(lines) != 1 || !strings.Contains(lines[0], "far-b") || !strings.Contains(lines[0], "near-a would do with 1") {
			return fmt.Errorf("logged is %q", lines)
		}
		return nil
	})
	if got := w.is("stays"); got != string(v1alpha1.DeviceHeld)+" far-b" {
		t.Errorf("refused, the device is %s", got)
	}
}

// What a launcher needs is read from the device with the lowest UID; what cannot be read
// is refused.
func TestBinderReadsLaunchers(t *testing.T) {
	w := newWorld(t)
	w.class("h200")
	w.hosts("n1", "a", 8, 8)
	w.replica("a")
	w.order("a", 1)
	w.soon(map[string]string{"a": "Held n1"})
	w.asksFor(`{"containers":`, request(1), "a")
	w.answered([]string{"GPU0716"}, "a")
}
