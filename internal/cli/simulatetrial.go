package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/attach"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// trial is a cluster as it would be, and what would be done there one after the other.
type trial struct {
	*scenery
	books     *books.Books
	forecast  *books.Forecast
	room      *cluster.Room // nil: what launchers need is not judged
	launchers *launchers
	subject   *books.Fit // of the VM that is asked about, where it was among those that started again
}

// trial makes a forecast of a cluster. It is to be closed.
func (c *scenery) trial(l *launchers) *trial {
	t := &trial{scenery: c, books: cluster.BooksOf(c.docs, c.agents, c.hnc), launchers: l}
	names := t.books.Names()
	t.room = cluster.RoomOf(c.docs, func(name corev1.ResourceName) bool { return names.Has(gpu.ResourceName(name)) })
	t.forecast = t.books.Forecast()
	return t
}

func (t *trial) close() { t.forecast.Close() }

// notes say what is not judged.
func (t *trial) notes() []string {
	if t.room == nil {
		return []string{"what VMs need beside GPUs is not judged: no Node says what CPU it has"}
	}
	return t.launchers.notes
}

// machine returns the VM or the VMI of a name; nil where there is none.
func machine(all []cluster.Startable, name cluster.Named) *cluster.Startable {
	i := slices.IndexFunc(all, func(s cluster.Startable) bool { return s.Named == name })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// start starts a VM, and says what becomes of it. Where it fits it has its units and its
// room from then on.
func (t *trial) start(ctx context.Context, m *cluster.Startable) books.Fit {
	set, needs, err := t.wants(ctx, m)
	if err != nil {
		return books.Fit{Refusal: diagnose.Refused(err, attach.Named(m.VMI))}
	}
	fit := t.forecast.Place(set, alloc.Bound)
	if fit.Refusal == nil && needs != nil {
		t.room.Give(needs, fit.Node)
	}
	return fit
}

// try says what would become of a VM that is started.
func (t *trial) try(ctx context.Context, m *cluster.Startable) books.Fit {
	set, _, err := t.wants(ctx, m)
	if err != nil {
		return books.Fit{Refusal: diagnose.Refused(err, attach.Named(m.VMI))}
	}
	return t.forecast.Try(set)
}

// wants returns what a VM asks for, and what its launcher needs; nil where that is not
// judged.
func (t *trial) wants(ctx context.Context, m *cluster.Startable) (set books.Set, needs *corev1.PodSpec, err error) {
	set, err = attach.Wants(ctx, cluster.ReaderOf(t.docs), t.books, cluster.MadeFor(t.docs, m.Named), m.VMI)
	if err == nil && t.room != nil {
		needs, err = t.launchers.of(ctx, m)
	}
	if needs != nil {
		set.Fits = t.room.Fits(needs, nil)
	}
	return set, needs, err
}

// restart starts VMs again whose instances have ended, and says where all of those are
// then; from says where they were. An instance without a VM is gone. The VM that is asked
// about takes its turn, and is not among those.
func (t *trial) restart(ctx context.Context, before []cluster.Startable, ended []cluster.Named, from map[cluster.Named]string, subject cluster.Named) (out []machineView) {
	for _, name := range ended {
		m := machine(before, name)
		v := machineView{Name: name.String(), From: from[name]}
		switch {
		case name == subject && m != nil:
			fit := t.start(ctx, m)
			t.subject = &fit
			continue
		case m == nil || m.Halted || !m.Refers() && !namesGPUs(m.VMI):
			continue
		case !m.VM:
			v.Why = "no VM starts it again"
		case !m.Refers():
			v.Why = "takes GPUs by name: not judged"
		default:
			fit := t.start(ctx, m)
			v.is(&fit)
		}
		out = append(out, v)
	}
	return out
}

func namesGPUs(v *kubevirtv1.VirtualMachineInstance) bool {
	return len(v.Spec.Domain.Devices.GPUs)+len(v.Spec.Domain.Devices.HostDevices) > 0
}

// launchers says what launchers need of a node, each asked for once.
type launchers struct {
	live  cluster.Reader
	known map[cluster.Named]*corev1.PodSpec
	notes []string // what is not judged
}

func (c *scenery) launchers() (*launchers, error) {
	l := &launchers{known: map[cluster.Named]*corev1.PodSpec{}}
	if c.client == nil {
		l.live = cluster.ReaderOf(c.docs)
		return l, nil
	}
	var err error
	l.live, err = c.client.Reader()
	return l, err
}

// of returns nil for what is not known: then nothing is concluded, and a note says so. The
// error is what the VM is refused for.
func (l *launchers) of(ctx context.Context, m *cluster.Startable) (*corev1.PodSpec, error) {
	if spec, known := l.known[m.Named]; known {
		return spec, nil
	}
	spec, err := l.ask(ctx, m)
	var refused *diagnose.Refusal
	switch {
	case errors.As(err, &refused):
		return nil, refused
	case err != nil:
		l.notes = append(l.notes, fmt.Sprintf("what the launcher of %s needs beside GPUs is not judged: %v", m.Named, err))
		spec = nil
	case m.Instancetype:
		l.notes = append(l.notes, fmt.Sprintf("%s has an instancetype: its CPU and memory are not judged", m.Named))
	}
	l.known[m.Named] = spec
	return spec, nil
}

func (l *launchers) ask(ctx context.Context, m *cluster.Startable) (*corev1.PodSpec, error) {
	text, err := cluster.LauncherOf(ctx, l.live, m.VMI)
	if err != nil {
		return nil, err
	}
	return cluster.ReadLauncher(text)
}
