package gpu

import (
	"maps"
	"slices"
)

// How says on what grounds a resource name was tied to a device id.
type How int

// The grounds, strongest first.
const (
	Explicit  How = iota // somebody named the pair
	Served               // the node serves the name that its plugin release gives the id
	Renamed              // the node serves the id under another name, and only one name can be it
	Inferred             // no inventory: the served name belongs to one id only
	Predicted            // the node serves nothing of NVIDIA's yet
	Unmatched            // no served name can be told to be the id's
	Illegal              // the predicted name is one that kubelet refuses
)

// Match ties the GPUs of one device id on one node to a resource name.
type Match struct {
	Device   DeviceID
	Count    int          // passthrough GPUs of this id: physical, on a vfio driver
	Name     ResourceName // "" when Unmatched or Illegal
	How      How
	Expected ResourceName // what the plugin release names the id
	// Candidates are the served names that were not tied to any id, sorted;
	// set when Unmatched.
	Candidates []ResourceName
}

// Positive returns the names under nvidia.com/ that the node serves, sorted. A
// name at 0 is left over from an earlier plugin, or its devices are unhealthy.
func (n *Node) Positive() []ResourceName {
	if n == nil {
		return nil
	}
	var out []ResourceName
	for name, count := range n.Allocatable {
		if count > 0 && name.IsNVIDIA() {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// MatchNames ties every id of the host's passthrough GPUs to a resource name,
// in the order of ids. A node that serves anything of NVIDIA's decides: the
// predicted name if positive, else the name that another plugin release gives
// the id, else the single unexplained name whose count fits. A nil node, and
// one that serves nothing of NVIDIA's yet, gets predictions.
func MatchNames(h *Host, n *Node, r Release) []Match {
	cards := passthrough(h)
	positive := n.Positive()
	out := make([]Match, 0, len(cards))
	for _, d := range slices.Sorted(maps.Keys(cards)) {
		m := Match{Device: d, Count: len(cards[d]), Expected: r.Name(d)}
		switch {
		case len(positive) > 0:
			m.Name, m.How = servedName(d, m.Expected, positive)
		case m.Expected.Check() != nil:
			m.How = Illegal
		default:
			m.Name, m.How = m.Expected, Predicted
		}
		out = append(out, m)
	}
	if slices.ContainsFunc(out, func(m Match) bool { return m.How == Unmatched }) {
		matchByCount(out, cards, n, unexplained(h, positive, out, r))
	}
	return out
}

// passthrough returns the physical GPUs on a vfio driver, by device id.
func passthrough(h *Host) map[DeviceID][]*Function {
	out := map[DeviceID][]*Function{}
	for _, f := range h.GPUs() {
		if f.Driver.IsVFIO() {
			out[f.ID.Device] = append(out[f.ID.Device], f)
		}
	}
	return out
}

// servedName finds the positive name that a known release gives the id.
func servedName(d DeviceID, expected ResourceName, positive []ResourceName) (ResourceName, How) {
	if slices.Contains(positive, expected) {
		return expected, Served
	}
	var found []ResourceName
	for _, name := range positive {
		if slices.Contains(DeviceIDs(name), d) {
			found = append(found, name)
		}
	}
	if len(found) == 1 {
		return found[0], Renamed
	}
	return "", Unmatched
}

// unexplained returns the positive names that nothing accounts for: no container
// or vGPU resource, no name that a release gives to some NVIDIA id.
func unexplained(h *Host, positive []ResourceName, matches []Match, r Release) []ResourceName {
	taken := map[ResourceName]bool{}
	for i := range h.Functions {
		if f := &h.Functions[i]; f.IsNVIDIA() {
			taken[r.Name(f.ID.Device)] = true
		}
	}
	for _, m := range matches {
		taken[m.Name] = true
	}
	var out []ResourceName
	for _, name := range positive {
		if !taken[name] && !name.IsContainer() && !name.IsVGPU() && len(DeviceIDs(name)) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// matchByCount gives an unmatched id the one unexplained name whose count fits,
// unless another unmatched id could claim it as well.
func matchByCount(matches []Match, cards map[DeviceID][]*Function, n *Node, names []ResourceName) {
	claims := map[ResourceName]int{}
	fits := map[DeviceID][]ResourceName{}
	for _, m := range matches {
		if m.How != Unmatched {
			continue
		}
		for _, name := range names {
			if fitsCount(cards[m.Device], n.Allocatable[name]) {
				fits[m.Device] = append(fits[m.Device], name)
				claims[name]++
			}
		}
	}
	for i := range matches {
		m := &matches[i]
		if m.How != Unmatched {
			continue
		}
		if f := fits[m.Device]; len(f) == 1 && claims[f[0]] == 1 {
			m.Name, m.How = f[0], Renamed
			continue
		}
		m.Candidates = names
	}
}

// fitsCount reports whether a plugin could offer count units of the cards: one
// per card, or one per IOMMU group (before v1.5.0).
func fitsCount(cards []*Function, count int64) bool {
	groups := map[Group]bool{}
	ungrouped := 0
	for _, f := range cards {
		if _, ok := f.Group.ID(); ok {
			groups[f.Group] = true
		} else if !f.Group.None() {
			ungrouped++
		}
	}
	return count == int64(len(cards)) || count == int64(len(groups)+ungrouped)
}

// Inference is what a served resource name says about the GPUs of a node whose
// inventory is not known.
type Inference struct {
	Name ResourceName
	IDs  []DeviceID // the GPUs that carry the name in some release, sorted
}

// Infer reads the positive names of a node back to device ids, by the rules of
// all known releases. Container and vGPU resources are left out, and so are
// names that belong to no GPU (audio functions, NVSwitches).
func Infer(n *Node) []Inference {
	var out []Inference
	for _, name := range n.Positive() {
		if name.IsContainer() || name.IsVGPU() {
			continue
		}
		all := DeviceIDs(name)
		gpus := slices.DeleteFunc(slices.Clone(all), func(d DeviceID) bool { return !IsGPUDevice(d) })
		if len(all) > 0 && len(gpus) == 0 {
			continue
		}
		out = append(out, Inference{Name: name, IDs: gpus})
	}
	return out
}
