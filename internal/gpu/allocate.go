package gpu

import (
	"fmt"
	"slices"
	"strings"
)

// Env is the environment variable through which the plugin tells virt-launcher
// what it got; the zero Env is none.
type Env struct {
	Key   string // PCI_RESOURCE_… or MDEV_PCI_RESOURCE_…
	Value string // PCI addresses or UUIDs, joined by commas
}

// String returns KEY=VALUE.
func (e Env) String() string { return e.Key + "=" + e.Value }

// Prefixes of the variables, without the "_" behind.
const (
	envPCI  = "PCI_RESOURCE"
	envMdev = "MDEV_PCI_RESOURCE"
)

// LauncherFindsEnv reports whether virt-launcher finds the variable that r
// sets for n. It asks for the upper-cased name, which r sets only from v1.4.0
// on: before, whatever has lower-case letters in its name is not found, bare
// ids like 26b5 and vGPU types like NVIDIA_RTX5000-Ada-8Q, and the VM fails
// with a device count that does not match.
func (r Release) LauncherFindsEnv(n ResourceName) bool {
	return r.envKey(envPCI, n) == n.launcherKey(envPCI)
}

// envKey is the key that r sets for n.
func (r Release) envKey(prefix string, n ResourceName) string {
	name := n.Short()
	if r.upperCasesEnv() {
		name = strings.ToUpper(name)
	}
	return prefix + "_NVIDIA_COM_" + name
}

// launcherKey is the key that virt-launcher looks for
// (kubevirt.io/kubevirt, pkg/util, ResourceNameToEnvVar).
func (n ResourceName) launcherKey(prefix string) string {
	return prefix + "_" + strings.NewReplacer("/", "_", ".", "_").Replace(strings.ToUpper(string(n)))
}

// Allocate returns the variable that the plugin sets when kubelet allocates the
// units with these ids, in the order asked for; none for no ids. Before v1.6.0
// it lists the whole group of every unit asked for, so that a sibling can take
// a GPU's place in the VM, and v1.5.0 repeats a group for each of its units
// asked for. It fails for an id that is not listed, and for a unit whose
// AllocateFails is set.
func (g *Registration) Allocate(unitIDs ...string) (Env, error) {
	var values []string
	for _, id := range unitIDs {
		i := slices.IndexFunc(g.Units, func(u Unit) bool { return u.ID == id })
		if i < 0 {
			return Env{}, fmt.Errorf("allocate %s: unknown device %q", g.Name, id)
		}
		if g.Units[i].AllocateFails {
			return Env{}, fmt.Errorf("allocate %s: no vfio device node for %q", g.Name, id)
		}
		values = append(values, g.allocated(&g.Units[i])...)
	}
	if len(values) == 0 {
		return Env{}, nil
	}
	prefix := envPCI
	if g.IsVGPU() {
		prefix = envMdev
	}
	return Env{Key: g.Release.envKey(prefix, g.Name), Value: strings.Join(values, ",")}, nil
}

// allocated lists what the variable says about one unit.
func (g *Registration) allocated(u *Unit) []string {
	if u.Mdev != nil || g.Release.allocatesOneUnit() {
		return []string{u.ID}
	}
	var addresses []string
	for _, f := range u.Group {
		addresses = append(addresses, f.Address.String())
	}
	return addresses
}
