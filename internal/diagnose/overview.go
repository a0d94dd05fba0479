package diagnose

import (
	"cmp"
	"slices"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Overview is a cluster at a glance. Its JSON form is what gpuctl status prints;
// keys are added over time and never change their meaning.
type Overview struct {
	KubeVirt   *KubeVirtView  `json:"kubevirt"` // null when no KubeVirt CR was found
	Hook       *HookView      `json:"hook"`     // null when no run of a release's hook is on record
	Controller ControllerView `json:"controller"`
	Agents     AgentsView     `json:"agents"`
	Orders     *OrdersView    `json:"orders"`    // null when nothing is ordered
	Nodes      []NodeView     `json:"nodes"`     // one for each node and resource name
	Resources  []ResourceView `json:"resources"` // by name
	Waiting    []WaitingView  `json:"waiting"`   // VMs that do not get their GPUs
	Findings   []Finding      `json:"findings"`  // most causal first
	Totals     Totals         `json:"totals"`
	Next       string         `json:"next"` // the command to run next, "" when there is nothing to do
}

// KubeVirtView is the wiring target.
type KubeVirtView struct {
	Object  string `json:"object"` // "KubeVirt kubevirt/kubevirt", or the HyperConverged that manages it
	Version string `json:"version"`
	Gate    bool   `json:"gate"`      // HostDevices is on
	Table   bool   `json:"table"`     // there is a host device table
	Served  int    `json:"served"`    // resource names of GPUs that nodes serve
	Wired   int    `json:"permitted"` // of these, the permitted ones
}

// HookView is the last run of a release's hook on record. Kubernetes keeps Events
// for an hour.
type HookView struct {
	Result   string    `json:"result"` // Wired, WiringChecked, WiringHeldBack, WiringRefused, WiringTimedOut, WiringFailed, Unwired
	At       time.Time `json:"at"`
	Release  string    `json:"release"` // "" for gpuctl wire by hand
	Revision string    `json:"revision"`
	Changes  int       `json:"changes"` // to the table and the gate
	Summary  string    `json:"summary"` // its first line
}

// AgentsView says which node agents report.
type AgentsView struct {
	Known     bool         `json:"known"` // false when they were not looked at
	Total     int          `json:"total"`
	Reporting int          `json:"reporting"`
	Silent    []SilentView `json:"silent"`
}

// SilentView is an agent that does not report.
type SilentView struct {
	Node    string `json:"node"`
	Seconds int64  `json:"seconds"` // since its Lease was renewed last, 0 when it never was
	Problem string `json:"problem"`
}

// NodeView is what one node has of one resource name.
type NodeView struct {
	Node     string           `json:"node"`
	Resource gpu.ResourceName `json:"resourceName"` // "" for cards that have no name yet
	Tally
	Users []string `json:"users"` // "tenant-a/trainer", or "pod tenant-a/x" for what is no VM
	Note  string   `json:"note"`
	Code  Code     `json:"code"` // of the note, "" when it is no finding
}

// Tally counts GPUs, or slots of a vGPU, by what can be done with them.
type Tally struct {
	Free     int64 `json:"free"`
	Used     int64 `json:"used"`
	Unusable int64 `json:"unusable"` // no VM can have them
	Unknown  int64 `json:"unknown"`  // nothing tells whether they are free
}

// Total counts all of them.
func (u Tally) Total() int64 { return u.Free + u.Used + u.Unusable + u.Unknown }

func (u *Tally) add(o Tally) {
	u.Free += o.Free
	u.Used += o.Used
	u.Unusable += o.Unusable
	u.Unknown += o.Unknown
}

// ResourceView is one resource name over all nodes.
type ResourceView struct {
	Name      gpu.ResourceName `json:"resourceName"`
	Nodes     int              `json:"nodes"`
	Permitted bool             `json:"permitted"`
	Tally
}

// WaitingView is a VM that does not get its GPUs, and why.
type WaitingView struct {
	Namespace string    `json:"namespace"`
	Name      string    `json:"name"`
	Since     time.Time `json:"since"`
	Code      Code      `json:"code"`
	Why       string    `json:"why"`
}

// Totals sums up.
type Totals struct {
	GPUs     Tally `json:"gpus"`
	Errors   int   `json:"errors"`
	Warnings int   `json:"warnings"`
	Infos    int   `json:"infos"`
}

// Look puts the evidence at a glance.
func Look(e *Evidence) Overview {
	d := newDiagnosis(e)
	report, _ := d.run(Subject{})
	o := Overview{
		Hook: e.Hook, Nodes: []NodeView{}, Resources: []ResourceView{}, Waiting: []WaitingView{},
		Findings: append([]Finding{}, report.Findings...), Agents: agentsView(e.Agents),
		Controller: e.Controller.view(), Orders: ordersView(e.Devices),
	}
	about := aboutNodes(o.Findings)
	for i := range d.Nodes {
		n := &d.Nodes[i]
		o.Nodes = append(o.Nodes, d.nodeViews(n, about[n.Name])...)
	}
	o.resources(d.index)
	o.kubevirt(d.index)
	for _, c := range report.Chains {
		if root := c.Root(); c.VM != nil && root != nil {
			o.Waiting = append(o.Waiting, WaitingView{c.VM.Namespace, c.VM.Name, c.VM.Created, root.Code, root.Message})
		}
	}
	for _, f := range o.Findings {
		switch f.Severity {
		case Error:
			o.Totals.Errors++
		case Warning:
			o.Totals.Warnings++
		default:
			o.Totals.Infos++
		}
	}
	o.Next = o.next()
	return o
}

func (o *Overview) next() string {
	switch {
	case len(o.Waiting) > 0:
		return "gpuctl diagnose vm/" + o.Waiting[0].Name + " -n " + o.Waiting[0].Namespace
	case o.Totals.Errors+o.Totals.Warnings > 0:
		return "gpuctl diagnose"
	}
	return ""
}

func agentsView(agents []Agent) AgentsView {
	v := AgentsView{Known: agents != nil, Total: len(agents), Silent: []SilentView{}}
	for _, a := range agents {
		if a.Reports {
			v.Reporting++
			continue
		}
		v.Silent = append(v.Silent, SilentView{a.Node, int64(a.Silent.Seconds()), a.Problem})
	}
	return v
}

func (o *Overview) resources(x *index) {
	at := map[gpu.ResourceName]int{}
	for i := range o.Nodes {
		n := &o.Nodes[i]
		o.Totals.GPUs.add(n.Tally)
		if n.Resource == "" || x.served[n.Resource] == 0 {
			continue
		}
		j, ok := at[n.Resource]
		if !ok {
			j = len(o.Resources)
			at[n.Resource] = j
			o.Resources = append(o.Resources, ResourceView{Name: n.Resource, Permitted: !x.table().Set || x.table().Permits(n.Resource)})
		}
		r := &o.Resources[j]
		r.Nodes++
		r.Tally.add(n.Tally)
	}
	slices.SortFunc(o.Resources, func(a, b ResourceView) int { return cmp.Compare(a.Name, b.Name) })
}

func (o *Overview) kubevirt(x *index) {
	w := x.Wiring
	if w == nil {
		return
	}
	o.KubeVirt = &KubeVirtView{Object: w.Object, Version: w.Version, Gate: w.Gate || !w.NeedsGate, Table: w.Table.Set}
	for i := range o.Resources {
		o.KubeVirt.Served++
		if w.Table.Set && o.Resources[i].Permitted {
			o.KubeVirt.Wired++
		}
	}
}
