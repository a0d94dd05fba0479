package diagnose

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// ordered returns the evidence in an order of its own, so that what comes out does
// not hang on the order in which a cluster or a file lists things. Messages come with
// the current state first, then the newest.
func ordered(e *Evidence) Evidence {
	out := *e
	out.Nodes = slices.SortedStableFunc(slices.Values(e.Nodes), func(a, b gpu.Node) int { return strings.Compare(a.Name, b.Name) })
	out.Hosts = slices.SortedStableFunc(slices.Values(e.Hosts), func(a, b gpu.Host) int { return strings.Compare(a.Node, b.Node) })
	out.Agents = slices.SortedStableFunc(slices.Values(e.Agents), func(a, b Agent) int { return strings.Compare(a.Node, b.Node) })
	out.Legacy = slices.SortedStableFunc(slices.Values(e.Legacy), func(a, b Legacy) int { return strings.Compare(a.Ref, b.Ref) })
	out.VMs = slices.SortedStableFunc(slices.Values(e.VMs), func(a, b VM) int { return strings.Compare(a.String(), b.String()) })
	out.Pods = slices.SortedStableFunc(slices.Values(e.Pods), func(a, b Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	out.Devices = slices.SortedStableFunc(slices.Values(e.Devices), func(a, b Device) int { return strings.Compare(a.object(), b.object()) })
	out.Messages = slices.SortedStableFunc(slices.Values(e.Messages), byNews)
	return out
}

// byNews orders messages: what names no object last, since whose it is hangs on the
// machines that others name.
func byNews(a, b Message) int {
	nameless := func(m *Message) int {
		if m.About.Kind == "" {
			return 1
		}
		return 0
	}
	old := func(m *Message) int {
		if m.At.IsZero() {
			return 0
		}
		return 1
	}
	return cmp.Or(
		cmp.Compare(nameless(&a), nameless(&b)), cmp.Compare(old(&a), old(&b)), b.At.Compare(a.At),
		strings.Compare(a.About.String(), b.About.String()), strings.Compare(a.Source, b.Source),
		strings.Compare(a.Reason, b.Reason), strings.Compare(a.Text, b.Text),
	)
}
