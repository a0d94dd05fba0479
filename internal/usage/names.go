package usage

import (
	"maps"
	"slices"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Source says why a resource name counts as a GPU.
type Source uint8

// The sources of effective names, the hoster's own first.
const (
	Listed      Source = iota // the hoster lists it: gpu.resourceNames
	Offered                   // a class has it
	Held                      // a device is placed under it: its class may be gone
	Reported                  // an agent reports a GPU or a vGPU type that is called so
	Allocatable               // a node shows it, and it belongs to a GPU
	Permitted                 // the host device table has it for one of NVIDIA's ids, or as a mediated device
	Claimable                 // a DeviceClass gives GPUs out by it
)

// String returns the source in words.
func (s Source) String() string {
	return [...]string{"listed by the hoster", "a class", "a device", "an agent", "a node's allocatable", "the host device table", "a DeviceClass"}[s]
}

// Names are the effective resource names: those whose units count. The zero Names
// has none.
type Names struct {
	sources map[gpu.ResourceName][]Source
	base    map[gpu.ResourceName]gpu.ResourceName // of names that stand for another one
}

// Has reports that units of the name count.
func (n Names) Has(name gpu.ResourceName) bool { return len(n.sources[name]) > 0 }

// All returns the names, sorted.
func (n Names) All() []gpu.ResourceName { return slices.Sorted(maps.Keys(n.sources)) }

// Sources returns why a name counts, each source once, the hoster's own first; nil
// when it does not count.
func (n Names) Sources(name gpu.ResourceName) []Source { return slices.Clone(n.sources[name]) }

// Base returns the name that units of the name count under: the extended resource
// name of a DeviceClass that was asked for by its own name, else the name itself.
// So nobody gets past a budget by the other spelling.
func (n Names) Base(name gpu.ResourceName) gpu.ResourceName {
	if base, ok := n.base[name]; ok {
		return base
	}
	return name
}

func (n Names) add(name gpu.ResourceName, s Source) {
	if name == "" {
		return
	}
	list := n.sources[name]
	if at, found := slices.BinarySearch(list, s); !found {
		n.sources[name] = slices.Insert(list, at, s)
	}
}

// guess adds a name that the hoster did not choose. The container plugin's names
// are none: such a GPU is never handed to a VM.
func (n Names) guess(name gpu.ResourceName, s Source) {
	if !name.IsContainer() {
		n.add(name, s)
	}
}
