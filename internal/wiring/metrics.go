package wiring

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// Metrics are what the controller counts.
type Metrics struct {
	writes, failures, reverts prometheus.Counter
	wired, contested, idle    prometheus.Gauge
}

// NewMetrics makes the metrics and registers them.
func NewMetrics(in prometheus.Registerer) (*Metrics, error) {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Namespace: "gpuctl", Subsystem: "wiring", Name: name, Help: help})
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "gpuctl", Subsystem: "wiring", Name: name, Help: help})
	}
	m := &Metrics{
		writes:    counter("writes_total", "Writes to the KubeVirt CR or the HyperConverged."),
		failures:  counter("write_failures_total", "Writes that failed for good, or for longer than they were tried again."),
		reverts:   counter("reverts_total", "Times that somebody took away what gpuctl had written."),
		wired:     gauge("wired", "Whether the target has all that VMs need for the GPUs that nodes serve. Only the leader knows; others say 0."),
		contested: gauge("contested", "Whether somebody takes the wiring away again and again. Only the leader knows; others say 0."),
		idle:      gauge("unserved_entries", "Entries of gpuctl's own whose names no node serves now. Only the leader knows; others say 0."),
	}
	return m, errors.Join(in.Register(m.writes), in.Register(m.failures), in.Register(m.reverts), in.Register(m.wired), in.Register(m.contested), in.Register(m.idle))
}

// show sets what is, rather than what has happened.
func (m *Metrics) show(s *v1alpha1.GPUWiringStatus, unserved int) {
	set := func(g prometheus.Gauge, condition string) {
		g.Set(0)
		if meta.IsStatusConditionTrue(s.Conditions, condition) {
			g.Set(1)
		}
	}
	set(m.wired, v1alpha1.ConditionWired)
	set(m.contested, v1alpha1.ConditionContested)
	m.idle.Set(float64(unserved))
}
