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
// A name that Kubernetes refuses cannot be served, whatever the node says.
func (n *Node) Positive() []ResourceName {
	if n == nil {
		return nil
	}
	var out []ResourceName
	for name, count := range n.Allocatable {
		if count > 0 && name.IsNVIDIA() && name.Check() == nil {
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
// one that serves nothing of NVIDIA's yet, gets predictions. t is what is
// permitted already: it explains names as well.
func MatchNames(h *Host, n *Node, r Release, t Table) []Match {
	m := matcher{host: h, node: n, release: r, table: t, positive: n.Positive(), cards: passthrough(h), taken: map[ResourceName]bool{}}
	for _, d := range slices.Sorted(maps.Keys(m.cards)) {
		m.matches = append(m.matches, Match{Device: d, Count: len(m.cards[d]), Expected: r.Name(d), How: Unmatched})
	}
	if len(m.positive) == 0 {
		m.predict()
		return m.matches
	}
	m.byName()
	m.byRelease()
	if slices.ContainsFunc(m.matches, func(x Match) bool { return x.How == Unmatched }) {
		m.byCount()
	}
	return m.matches
}

type matcher struct {
	host     *Host
	node     *Node
	release  Release
	table    Table
	positive []ResourceName
	cards    map[DeviceID][]*Function
	matches  []Match
	taken    map[ResourceName]bool // tied to an id
}

func (m *matcher) predict() {
	for i := range m.matches {
		x := &m.matches[i]
		if x.Expected.Check() != nil {
			x.How = Illegal
			continue
		}
		x.Name, x.How = x.Expected, Predicted
	}
}

func (m *matcher) tie(x *Match, name ResourceName, how How) {
	x.Name, x.How = name, how
	m.taken[name] = true
}

// byName takes the names that the release gives the ids.
func (m *matcher) byName() {
	for i := range m.matches {
		if x := &m.matches[i]; slices.Contains(m.positive, x.Expected) {
			m.tie(x, x.Expected, Served)
		}
	}
}

// byRelease takes the only name, of those not tied yet, that some known release
// gives an id, and gives to no other id of the host that still lacks one.
func (m *matcher) byRelease() {
	claims := map[ResourceName]int{}
	found := map[DeviceID][]ResourceName{}
	for _, x := range m.matches {
		for _, name := range m.positive {
			if x.How == Unmatched && !m.taken[name] && slices.Contains(DeviceIDs(name), x.Device) {
				found[x.Device] = append(found[x.Device], name)
				claims[name]++
			}
		}
	}
	for i := range m.matches {
		x := &m.matches[i]
		if f := found[x.Device]; len(f) == 1 && (claims[f[0]] == 1 || m.oneRelease(f[0])) {
			m.tie(x, f[0], Renamed)
		}
	}
}

// oneRelease reports that a single release gives the name to all the host's ids
// that could claim it: they then share it (see Registration.Collides).
func (m *matcher) oneRelease(name ResourceName) bool {
	for _, r := range snapshotReleases() {
		all := true
		for _, x := range m.matches {
			if x.How == Unmatched && slices.Contains(DeviceIDs(name), x.Device) && r.Name(x.Device) != name {
				all = false
			}
		}
		if all {
			return true
		}
	}
	return false
}

// byCount gives an unmatched id the one unexplained name whose count fits, unless
// another unmatched id could claim it as well.
func (m *matcher) byCount() {
	names := m.unexplained()
	claims := map[ResourceName]int{}
	fits := map[DeviceID][]ResourceName{}
	for _, x := range m.matches {
		for _, name := range names {
			if x.How == Unmatched && m.mayName(name, x.Device) && fitsCount(m.cards[x.Device], m.node.Allocatable[name]) {
				fits[x.Device] = append(fits[x.Device], name)
				claims[name]++
			}
		}
	}
	for i := range m.matches {
		x := &m.matches[i]
		if x.How != Unmatched {
			continue
		}
		if f := fits[x.Device]; len(f) == 1 && claims[f[0]] == 1 {
			m.tie(x, f[0], Renamed)
			continue
		}
		for _, name := range names {
			if m.mayName(name, x.Device) {
				x.Candidates = append(x.Candidates, name)
			}
		}
	}
}

// unexplained returns the positive names that nothing accounts for: no container,
// network or vGPU resource, no name that a release gives to some NVIDIA id.
func (m *matcher) unexplained() []ResourceName {
	parts := map[ResourceName]bool{}
	for i := range m.host.Functions {
		if f := &m.host.Functions[i]; f.IsNVIDIA() {
			parts[m.release.Name(f.ID.Device)] = true
		}
	}
	var out []ResourceName
	for _, name := range m.positive {
		if !m.taken[name] && !parts[name] && !name.IsContainer() && !name.IsNetwork() && !name.IsVGPU() && len(DeviceIDs(name)) == 0 {
			out = append(out, name)
		}
	}
	return out
}

// mayName reports that the table does not tie the name to something else than id.
func (m *matcher) mayName(name ResourceName, d DeviceID) bool {
	listed := false
	for _, e := range m.table.Entries {
		if e.Name != name {
			continue
		}
		listed = true
		if id, ok := e.ID(); ok && id == NVIDIA(d) {
			return true
		}
	}
	return !listed
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
