package diagnose

import (
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Evidence is everything that a diagnosis goes by. What is not known is left out,
// and nothing is concluded from its absence.
type Evidence struct {
	Wiring  *Wiring // nil when no KubeVirt CR was given
	Nodes   []gpu.Node
	Hosts   []gpu.Host
	Given   []string    // nodes whose inventories were given, not reported by an agent
	Release gpu.Release // of nodes on which no plugin was seen
	Agents  []Agent     // nil when they were not looked at
	VMs     []VM
	Pods    []Pod
	// PodsKnown says that Pods holds all that use GPUs: then a unit that none of them
	// requests is free.
	PodsKnown bool
	Messages  []Message
	Devices   []Device // what tenants have ordered
	// Judge says how an order stands by the books; nil when there are none.
	Judge func(namespace, name string) Judgement
	// JudgeSet says the same of what a machine starts with; nil as Judge.
	JudgeSet func(Ask) SetJudgement
	// MachinesKnown says that VMs holds all instances of a device's namespace.
	MachinesKnown bool
	At            time.Time // that ages count to
	Logs          []Log
	Legacy        []Legacy
	Hook          *HookView // the last wiring on record
	// Controller is what is known of the controller.
	Controller Controller
	// Findings were made while the evidence was read: about the inventories, the
	// table, and what could not be read.
	Findings []Finding
}

// Wiring is what a KubeVirt CR, or the HyperConverged that manages it, permits.
type Wiring struct {
	Object    string // "KubeVirt kubevirt/kubevirt"
	Version   string // of KubeVirt, "" when the CR does not say
	Table     gpu.Table
	NeedsGate bool // HyperConverged turns HostDevices on by itself
	Gate      bool
	// DRA says whether devices may come from resource claims.
	DRA   gpu.Presence
	Lacks []Lack
	// Copy is what HyperConverged has passed on to KubeVirt; nil without one.
	Copy *Copy
	// Permit returns the flags with which wire permits a name.
	Permit func(gpu.ResourceName) string
}

// Copy is the KubeVirt CR that a HyperConverged manages.
type Copy struct {
	Object string // "KubeVirt kubevirt/kubevirt"
	Table  gpu.Table
}

// permits reports whether KubeVirt lets a machine have the name: by the table, and by
// the copy of it that KubeVirt reads.
func (w *Wiring) permits(name gpu.ResourceName) bool {
	return (!w.Table.Set || w.Table.Permits(name)) && !w.heldUp(name)
}

// heldUp reports a name that HyperConverged permits and has not passed on.
func (w *Wiring) heldUp(name gpu.ResourceName) bool {
	return w.Copy != nil && w.Copy.Table.Set && !w.Copy.Table.Permits(name)
}

// readsLegacy reports whether KubeVirt may take its configuration from the legacy
// ConfigMap: no release since 1.0 does.
func (w *Wiring) readsLegacy() bool {
	return w == nil || w.Version == "" || strings.HasPrefix(strings.TrimPrefix(w.Version, "v"), "0.")
}

// Lack is an entry that the table should have.
type Lack struct {
	Selector string
	Name     gpu.ResourceName
	Served   bool // a node serves it; else it is predicted, or named by somebody
	Why      string
}

// Lacks reports whether wire would add an entry of the name.
func (w *Wiring) lacks(name gpu.ResourceName) bool {
	return slices.ContainsFunc(w.Lacks, func(l Lack) bool { return l.Name == name })
}

// Ref names one object of the cluster.
type Ref struct{ Kind, Namespace, Name string }

// String returns "VirtualMachine tenant-a/trainer".
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// VM is one virtual machine with its instance, or an instance that no machine
// stands behind.
type VM struct {
	Ref
	Owner   string // "NodePool guest-a": who writes the object, "" when nobody else does
	Devices []gpu.Device
	Claims  []string           // names of entries that take their device from a resource claim
	BadName []string           // what is wrong with names of entries, "gpus[0].name \"a.b\" has a dot"
	Keys    []gpu.ResourceName // extended resources that domain.resources names
	Halted  bool               // it is not meant to run
	Mould   bool               // a pool or a replica set: what is made of it is judged by itself
	Status  string             // printableStatus of the machine, else the phase of the instance
	Phase   string             // of the instance, "" when there is none
	Created time.Time          // the instance, or the machine without one
	Node    string             // of the instance
	UID     string             // of the instance, "" when it is not known

	Orders    []string   // the GPUDevices that it names
	Templates []Template // the devices that are to be made for it
	BadOrders string     // why what names them cannot be read
	// Renamed says that the machine names others by now than its instance, which has those
	// above.
	Renamed bool
}

// Running reports an instance that has its devices.
func (v *VM) Running() bool { return v.Phase == "Running" }

// Live reports an instance that is not over.
func (v *VM) Live() bool { return v.Phase != "" && v.Phase != "Failed" && v.Phase != "Succeeded" }

// Counts returns how many units the machine wants of each name.
func (v *VM) Counts() map[gpu.ResourceName]int64 {
	out := map[gpu.ResourceName]int64{}
	for _, d := range v.Devices {
		out[d.Name]++
	}
	return out
}

// names returns the device names, each once, in order.
func (v *VM) names() []gpu.ResourceName {
	w := gpu.Workload{Devices: v.Devices}
	return w.Names()
}

// usesHostDevices reports whether the machine needs the gate.
func (v *VM) usesHostDevices() bool {
	return slices.ContainsFunc(v.Devices, func(d gpu.Device) bool { return d.Field == "hostDevices" })
}

// Pod is a pod that uses GPUs or that makes them usable.
type Pod struct {
	Namespace, Name, Node string
	VM                    string                     // name of the instance that it launches, "" for others
	Requests              map[gpu.ResourceName]int64 // of extended resources, as Kubernetes counts them
	Done                  bool                       // Succeeded or Failed: it holds nothing
	Operand               Operand
	Problem               string // why it does not run: "init container k8s-driver-manager: CrashLoopBackOff"
	Pinned                string // the only node that its affinity lets it run on; "" for none
	Refused               string // what kubelet said when it did not admit the pod
}

// Operand is a part of gpu-operator that runs on GPU nodes.
type Operand string

// The operands that a passthrough node depends on.
const (
	VFIOManager  Operand = "vfio-manager"
	DevicePlugin Operand = "device plugin"
	// On a vGPU node there are these two instead.
	VGPUManager       Operand = "vGPU manager"
	VGPUDeviceManager Operand = "vGPU device manager"
	Validator         Operand = "sandbox-validator" // the device plugin waits for it
)

// user names who holds the pod's devices: its machine, or itself.
func (p *Pod) user() string {
	if p.VM != "" {
		return p.Namespace + "/" + p.VM
	}
	return "pod " + p.Namespace + "/" + p.Name
}

// Message is what an event, a condition or a container says about an object.
type Message struct {
	About  Ref    // the zero Ref when that is not known
	Source string // "event FailedScheduling", "condition Synchronized"
	Reason string
	Text   string // without secrets, addresses of networks and the like
	At     time.Time
}

// Log is pasted log text: of a device plugin, of vfio-manager or of a launcher.
type Log struct {
	Name  string // the file
	Lines []string
}

// somebody joins up to three names and counts the rest.
func somebody(names []string) string {
	if len(names) > 4 {
		return strings.Join(names[:3], ", ") + " and " + count(len(names)-3, "more", "more")
	}
	return strings.Join(names, ", ")
}
