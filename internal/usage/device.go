package usage

import "github.com/gpuctl/gpuctl/internal/gpu"

// Device is what accounting needs of a GPUDevice; api/v1alpha1.DeviceState has the
// table of what its facts mean together.
type Device struct {
	UID, Namespace, Name, Class string
	// Resource is that of the placement, or of the class where there is none; ""
	// when the class is gone as well.
	Resource gpu.ResourceName
	Units    int64
	Node     string // of the placement; "" while it is pending
	Lost     bool   // the node stopped to serve them
	VMI      string // UID of the VMI that has claimed it; "" when none has
}

// Holds reports that the device takes units of its node's capacity.
func (d *Device) Holds() bool { return d.Node != "" && !d.Lost }

// Attached reports that a VMI has claimed the device. Its units may be lost.
func (d *Device) Attached() bool { return d.VMI != "" }

// units are never below 0.
func (d *Device) units() int64 { return min(max(0, d.Units), gpu.MaxUnits) }

// VMI is what accounting needs of a VirtualMachineInstance.
type VMI struct {
	UID, Namespace, Name string
	// ActivePods is status.activePods: UIDs of pods, and the node of each.
	ActivePods map[string]string
}

// Launchers says which pods are launchers of which VMI.
type Launchers map[launcherKey]string

type launcherKey struct{ namespace, pod string }

// LaunchersOf goes by status.activePods alone: owner references and labels are
// written by whoever creates the pod. A pod that two VMIs list is that of the
// smaller UID.
func LaunchersOf(vmis []VMI) Launchers {
	l := Launchers{}
	for i := range vmis {
		for pod := range vmis[i].ActivePods {
			key := launcherKey{vmis[i].Namespace, pod}
			if had, ok := l[key]; !ok || vmis[i].UID < had {
				l[key] = vmis[i].UID
			}
		}
	}
	return l
}

// VMI returns the UID of the VMI whose launcher the pod is, "" when it is no
// launcher. It is in the namespace of its VMI.
func (l Launchers) VMI(p *Pod) string {
	if p.UID == "" {
		return ""
	}
	return l[launcherKey{p.Namespace, p.UID}]
}
