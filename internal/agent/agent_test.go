package agent

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// store is an API server that counts.
type store struct {
	node           *v1alpha1.GPUNode
	reads, renewed int
	written        int
	err            error
}

func (s *store) GPUNode(context.Context, string) (*v1alpha1.GPUNode, error) {
	s.reads++
	return s.node, s.err
}

func (s *store) ReportGPUNode(_ context.Context, name string, spec *v1alpha1.GPUNodeSpec) (bool, error) {
	if s.err != nil {
		return false, s.err
	}
	if s.node != nil && cmp.Equal(s.node.Spec, *spec) {
		return false, nil
	}
	s.node = &v1alpha1.GPUNode{Spec: *spec}
	s.node.Name = name
	s.written++
	return true, nil
}

func (s *store) RenewAgentLease(context.Context, string, string, time.Time, time.Duration) error {
	s.renewed++
	return s.err
}

// rig is an agent whose host and clock are the test's.
type rig struct {
	*Agent
	store *store
	host  gpu.Host
	now   time.Time
}

func newRig() *rig {
	r := &rig{store: &store{}, now: time.Unix(1000, 0), host: host(card(1, "vfio-pci"))}
	r.restart()
	return r
}

func (r *rig) restart() {
	r.Agent = New(Config{
		Node: "a", Namespace: "n", Version: "v1", Interval: 15 * time.Second, Hold: 2 * time.Minute, Renew: 30 * time.Second,
		Scan: func() (gpu.Host, []string, error) { return r.host, nil, nil }, Now: func() time.Time { return r.now },
	}, r.store, logr.Discard())
}

// look looks once, and 15 seconds pass.
func (r *rig) look(t *testing.T) {
	t.Helper()
	if err := r.Agent.look(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(15 * time.Second)
}

func TestWritesOnChangeOnly(t *testing.T) {
	r := newRig()
	for range 40 { // ten minutes
		r.look(t)
	}
	if r.store.written != 1 || r.store.renewed != 20 {
		t.Errorf("an idle host took %d writes and %d renewals, want 1 and 20", r.store.written, r.store.renewed)
	}
	r.host = host(card(1, "vfio-pci"), card(2, "vfio-pci"))
	r.look(t)
	if r.store.written != 2 || r.store.node.Spec.GPUs != 2 {
		t.Errorf("a new card took %d writes: %+v", r.store.written, r.store.node.Spec)
	}
}

func TestRestartWithinADriverlessWindow(t *testing.T) {
	r := newRig()
	r.look(t)
	r.host = host(card(1, ""))
	r.restart()
	r.look(t)
	if r.store.written != 1 || r.store.node.Spec.OnVFIO != 1 {
		t.Errorf("%d writes, the GPUNode says %+v", r.store.written, r.store.node.Spec)
	}
	r.now = r.now.Add(3 * time.Minute)
	r.look(t)
	if r.store.written != 2 || r.store.node.Spec.OnVFIO != 0 || r.store.node.Spec.GPUs != 1 {
		t.Errorf("after the hold: %d writes, the GPUNode says %+v", r.store.written, r.store.node.Spec)
	}
}

// A GPUNode that somebody has changed or deleted is put right with the next Lease.
func TestRepairs(t *testing.T) {
	r := newRig()
	r.look(t)
	r.store.node = nil
	r.look(t)
	r.look(t)
	if r.store.node == nil || r.store.node.Spec.GPUs != 1 {
		t.Errorf("the deleted GPUNode is %+v", r.store.node)
	}
}

func TestHealth(t *testing.T) {
	r := newRig()
	expect := func(path string, want int) {
		t.Helper()
		w := httptest.NewRecorder()
		r.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, http.NoBody))
		if w.Code != want {
			t.Errorf("%s answers %d %q, want %d", path, w.Code, w.Body, want)
		}
	}
	expect("/healthz", http.StatusOK)
	expect("/readyz", http.StatusServiceUnavailable)
	r.health.looked(true)
	expect("/readyz", http.StatusOK)
	r.now = r.now.Add(10 * time.Minute)
	expect("/healthz", http.StatusServiceUnavailable)
	r.health.looked(false)
	expect("/healthz", http.StatusOK)
	expect("/readyz", http.StatusServiceUnavailable)
}

// What fails is tried again, and the agent is not ready meanwhile.
func TestRunGoesOn(t *testing.T) {
	r := newRig()
	r.store.err = errors.New("the API server is away")
	r.config.Interval = time.Millisecond
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	r.Run(ctx)
	if r.store.reads < 2 || r.health.ready() {
		t.Errorf("%d attempts, ready %t", r.store.reads, r.health.ready())
	}
}
