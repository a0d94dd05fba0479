package gpu

import (
	"slices"
	"strings"
)

// Inference is what a served resource name says about the GPUs of a node whose
// inventory is not known.
type Inference struct {
	Name ResourceName
	IDs  []DeviceID // the GPUs that carry the name, sorted
}

// Infer reads the positive names of a node back to device ids: by the rules of
// the release, when it is known to run there and knows the name, else by those of
// all known releases. Container, network and vGPU resources are left out, and so
// are names that belong to no GPU (audio functions, NVSwitches).
func Infer(n *Node, r Release) []Inference {
	var out []Inference
	for _, name := range n.Positive() {
		if name.IsContainer() || name.IsNetwork() || name.IsVGPU() {
			continue
		}
		all := DeviceIDs(name)
		if own := r.DeviceIDs(name); r.Known() && len(own) > 0 {
			all = own
		}
		gpus := slices.DeleteFunc(slices.Clone(all), func(d DeviceID) bool { return !IsGPUDevice(d) || d == 0 || d == 0xffff })
		if len(all) > 0 && len(gpus) == 0 {
			continue
		}
		out = append(out, Inference{Name: name, IDs: gpus})
	}
	return out
}

// NoLauncherFinds reports that a VM cannot use the device under the name, by
// whatever known release it is served: each writes a variable that virt-launcher
// does not look for (see Release.LauncherFindsEnv). A bare id that all of them
// have a name for comes from a release older still.
func NoLauncherFinds(d DeviceID, n ResourceName) bool {
	if Newest().LauncherFindsEnv(n) && strings.ToUpper(n.Short()) == n.Short() {
		return false // a name in upper case is found whoever writes it
	}
	_, older := n.hexID()
	named := false
	for _, r := range snapshotReleases() {
		if r.Name(d) != n {
			continue
		}
		if r.LauncherFindsEnv(n) {
			return false
		}
		named = true
	}
	return named || older && !snapshotReleases()[0].LauncherFindsEnv(n)
}

// snapshotReleases returns a release for every pci.ids snapshot that a release
// bundles, the newest of each, oldest first.
func snapshotReleases() []Release {
	return []Release{{1, 2, 1}, {1, 2, 4}, {1, 2, 7}, {1, 3, 0}, {1, 3, 1}, Newest()}
}
