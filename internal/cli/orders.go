package cli

import (
	"slices"
	"strings"
	"sync"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// addOrders says how orders are judged: by books of all that was read, where that is all
// there is to know.
func (m *material) addOrders(e *diagnose.Evidence) {
	if e.Devices == nil && m.whole("GPUDevice") {
		e.Devices = []diagnose.Device{} // none is not the same as not known
	}
	e.MachinesKnown = m.whole("VirtualMachineInstance")
	if !m.judges() {
		return
	}
	agents := e.Agents
	all := sync.OnceValue(func() *books.Books { return cluster.BooksOf(m.docs, agents, m.hnc) })
	e.Judge = func(namespace, name string) diagnose.Judgement { return all().Judge(namespace + "/" + name) }
	e.JudgeSet = func(a diagnose.Ask) diagnose.SetJudgement {
		set := books.Set{Object: a.Object, Namespace: a.Namespace}
		for _, name := range a.Devices {
			set.Devices = append(set.Devices, a.Namespace+"/"+name)
		}
		for _, t := range a.New {
			set.New = append(set.New, books.Order{Object: a.Object, Namespace: a.Namespace, Class: t.Class, Count: int32(t.Count)}) //nolint:gosec // 64 at most
		}
		return all().JudgeSet(set)
	}
}

// judges reports that what orders are judged by was read, all of it.
func (m *material) judges() bool {
	for _, kind := range []string{"GPUClass", "GPUDevice", "Namespace", "Node"} {
		if !m.whole(kind) {
			return false
		}
	}
	if !m.has("Namespace") || m.unreadSettings() { // each cluster has one: nobody looked
		return false
	}
	return !slices.ContainsFunc([]string{"ResourceQuota", "HelmRelease", "HierarchyConfiguration", "VirtualMachineInstance", "Pod"}, m.unread)
}

// unreadSettings reports that it could not be read who is a tenant.
func (m *material) unreadSettings() bool {
	return slices.ContainsFunc(m.problems, func(f diagnose.Finding) bool {
		return f.Code == "GPU0130" && strings.HasPrefix(f.Message, "ConfigMap "+v1alpha1.SettingsName)
	})
}

// whole reports that all objects of a kind are among the documents. Of files nobody
// knows: what there is counts.
func (m *material) whole(kind string) bool {
	if m.at.IsZero() {
		return m.has(kind)
	}
	return !m.unread(kind)
}

func (m *material) has(kind string) bool {
	return slices.ContainsFunc(m.docs, func(d manifest.Document) bool { return d.Kind() == kind })
}

// unread reports a kind that could not be read, or not in all of the cluster.
func (m *material) unread(kind string) bool {
	return slices.ContainsFunc(m.problems, func(f diagnose.Finding) bool {
		return f.Code == "GPU0130" && (strings.HasPrefix(f.Message, kind+"s could not be read") || strings.HasPrefix(f.Message, kind+"es could not be read"))
	})
}
