package diagnose

import (
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

const (
	// startsWithin is how long a start may take until it is known what became of it, and
	// a deleted device until it is gone.
	startsWithin = time.Minute
	// waitsLong is after how long an order that waits is worth a finding.
	waitsLong = 10 * time.Minute
)

// orderLinks are the chain of an order.
func orderLinks() []Link { return []Link{LinkOrder, LinkClass, LinkBudget, LinkPlacement, LinkUse} }

// orders walks the order that the subject is, or reports those of the cluster that are in
// trouble.
func (d *diagnosis) orders(subject Subject) {
	switch {
	case subject.Name == "":
		d.lost()
		d.waiting()
	case subject.Kind == "device":
		for i := range d.Devices {
			if v := &d.Devices[i]; v.Name == subject.Name && v.Namespace == subject.Namespace {
				d.ok = true
				d.device(v)
				return
			}
		}
	}
}

// device walks the chain of one order.
func (d *diagnosis) device(v *Device) {
	c := &custody{index: d.index, Device: v}
	if d.Judge != nil {
		c.judged = d.Judge(v.Namespace, v.Name)
	}
	w := walker{chain: Chain{Subject: v.object()}}
	for _, link := range orderLinks() {
		f, text, known := c.look(link)
		if !known && !w.broken {
			w.on(link, Unknown, "")
			continue
		}
		w.check(link, f, text)
	}
	d.chains = append(d.chains, w.chain)
	root := w.chain.Root()
	if root == nil {
		return
	}
	d.found = append(d.found, *root)
	if problem, none := d.Controller.leaderless(); none && root.Code != "GPU0710" && c.needsLeader(root) {
		d.found = append(d.found, NoLeader(v.object(), problem).Finding)
	}
}

// custody is one order, and what the books say of it.
type custody struct {
	*index
	*Device
	judged Judgement
}

// needsLeader reports a cause that only a controller that leads takes away.
func (c *custody) needsLeader(root *Finding) bool {
	return c.Node == "" || root.Code == "GPU0641" || root.Code == "GPU0642" || root.Code == "GPU0643" || root.Code == "GPU0713"
}

// look says what breaks a link, or what is known of it.
func (c *custody) look(link Link) (f *Finding, text string, known bool) {
	switch link {
	case LinkOrder:
		return c.leaving(), c.ordered(), true
	case LinkClass:
		return c.class()
	case LinkBudget:
		return c.budget()
	case LinkPlacement:
		return c.placement()
	default:
		return c.use()
	}
}

// ordered says what is asked for, by whom and since when.
func (c *custody) ordered() string {
	text := itoa(c.Count) + " x " + c.Class
	verb, by := "ordered", "by namespace "+c.Namespace
	if c.Made {
		verb, by = "made", "from the template of a VMI"
		if c.VM != "" {
			by = "from the template of VM " + c.VM
		}
	}
	if !c.Ordered.IsZero() {
		verb += " " + stamp(c.Ordered)
	}
	return text + ", " + verb + " " + by
}

// leaving reports a device that is deleted and still there.
func (c *custody) leaving() *Finding {
	if c.Deleted.IsZero() {
		return nil
	}
	var why, hint string
	switch {
	case c.Kept && c.VMI != "":
		why, hint = "VMI "+c.VMI+" has it", "it goes when that ends: virtctl stop "+c.VMI+" -n "+c.Namespace
	case c.Kept:
		why, hint = "gpuctl has not taken its finalizer away yet", "see who leads: gpuctl status"
	case len(c.Finalizers) > 0:
		why, hint = "the finalizer "+strings.Join(c.Finalizers, ", ")+" keeps it, which is not gpuctl's", "ask whoever wrote the finalizer: kubectl get gpudevice "+c.Name+" -n "+c.Namespace+" -o yaml"
	default:
		why, hint = "nothing keeps it any more", "kubectl get gpudevice "+c.Name+" -n "+c.Namespace
	}
	f := New("GPU0643", c.object(), Values{"device": c.Name, "since": stamp(c.Deleted), "why": why, "hint": hint})
	return &f
}

// refusedFor returns the refusal of the books if it belongs to one of the codes.
func (c *custody) refusedFor(codes ...Code) *Finding {
	if r := c.judged.Refusal; r != nil && slices.Contains(codes, r.Code) {
		return c.told(r.Finding)
	}
	return nil
}

// told adds what the device's condition says, where that is something else.
func (c *custody) told(f Finding) *Finding {
	if code, _, ok := strings.Cut(c.Said, ": "); ok && code != string(f.Code) {
		f.Message += "; its condition says since " + stamp(c.SaidAt) + ": " + c.Said
	}
	return &f
}

func (c *custody) class() (f *Finding, text string, known bool) {
	j := &c.judged
	if !j.Known {
		return nil, "", false
	}
	if f := c.refusedFor("GPU0612", "GPU0620", "GPU0621", "GPU0622", "GPU0623"); f != nil {
		return f, "", true
	}
	if j.Unusable != nil {
		return &j.Unusable.Finding, "", true
	}
	text = c.Class + " gives " + string(j.Class.Resource)
	switch {
	case !j.Class.Exists:
		return nil, c.Class + " is gone; the device keeps its units", true
	case j.Class.Deleting:
		text = c.Class + " is being deleted; the device keeps its units"
	case j.Class.Entitlement != "" && j.Class.EntitledBy != "":
		text += ", entitlement " + j.Class.Entitlement + " of " + j.Class.EntitledBy
	}
	return nil, text, true
}

func (c *custody) budget() (f *Finding, text string, known bool) {
	if f := c.refusedFor("GPU0602", "GPU0603", "GPU0604", "GPU0605", "GPU0606", "GPU0607", "GPU0608", "GPU0609", "GPU0610", "GPU0611", "GPU0613"); f != nil {
		return f, "", true
	}
	if !c.judged.Tenant {
		return nil, "", false
	}
	var steps []string
	for _, s := range c.judged.Budgets {
		steps = append(steps, s.String())
	}
	if len(steps) == 0 {
		return nil, "no level limits it", true
	}
	return nil, strings.Join(steps, "; "), true
}

func (c *custody) placement() (f *Finding, text string, known bool) {
	switch {
	case !c.Lost.IsZero():
		return c.gone(), "", true
	case c.Node != "":
		return nil, c.place(), true
	case c.judged.Refusal != nil:
		return c.told(c.judged.Refusal.Finding), "", true
	case c.judged.Room:
		return c.room()
	case c.Said != "":
		return c.saying(), "", true
	}
	return nil, "", false
}

// place says where the units are.
func (c *custody) place() string {
	text := c.Node + " has its " + itoa(c.Count)
	if !c.Since.IsZero() {
		text += " since " + stamp(c.Since)
	}
	if n := c.nodes[c.Node]; n != nil && n.NotReady {
		return text + "; the node is not ready, and nothing is concluded from what it serves"
	}
	if j := &c.judged; j.Known && j.Served > 0 {
		text += "; it serves " + itoa(j.Served) + ", " + itoa(j.Held) + " held"
	}
	return text
}

// gone reports units that the node has no more.
func (c *custody) gone() *Finding {
	f := UnitsLost(c.object(), c.Namespace, c.Name, c.Node, c.Resource).Finding
	f.Message += " since " + stamp(c.Lost) + c.why()
	return &f
}

// why says what is known of the node of a lost device.
func (c *custody) why() string {
	n := c.nodes[c.Node]
	switch {
	case len(c.Nodes) == 0:
		return ""
	case n == nil:
		return ": the node is gone"
	case n.NotReady:
		return ": the node is not ready"
	case c.judged.Known:
		return ": it serves " + itoa(c.judged.Served) + ", and " + itoa(c.judged.Held) + " are held by others"
	}
	return ": it serves " + itoa(n.Allocatable[gpu.ResourceName(c.Resource)])
}

// room is an order that would get its units now: somebody has to place it.
func (c *custody) room() (f *Finding, text string, known bool) {
	where := "there is room when reservations have moved"
	if c.judged.Node != "" {
		where = "there is room on " + c.judged.Node
	}
	if problem, none := c.Controller.leaderless(); none {
		return &NoLeader(c.object(), problem).Finding, "", true
	}
	if c.At.Sub(c.Ordered) < startsWithin {
		return nil, where + ": it is placed within seconds", true
	}
	found := New("GPU0714", c.object(), Values{"device": c.Name, "since": stamp(c.Ordered), "where": where})
	return c.told(found), "", true
}

// saying passes on what the condition says, where nothing else is known.
func (c *custody) saying() *Finding {
	code, text, _ := strings.Cut(c.Said, ": ")
	f := New("GPU0640", c.object(), Values{"orders": c.object(), "verb": "waits", "since": stamp(c.SaidAt), "text": c.Said, "device": c.Name, "namespace": c.Namespace})
	if e, known := Lookup(code); known {
		f.Code, f.Severity, f.Message = e.Code, e.Severity, "its condition says since "+stamp(c.SaidAt)+": "+text
		f.Hint = "gpuctl explain " + string(e.Code)
	}
	return &f
}

func (c *custody) use() (f *Finding, text string, known bool) {
	switch {
	case c.Node == "":
		return nil, "", false
	case c.VMI == "":
		text = "free: a VM can name it"
		if c.Refused != "" {
			text += "; the last start was refused: " + c.Refused
		}
		return nil, text, true
	}
	if f := c.user(); f != nil {
		return f, "", true
	}
	if c.VMIUID == "" {
		return nil, "VMI " + c.VMI + " starts with it since " + stamp(c.Taken), true
	}
	return nil, "VMI " + c.VMI + " has it since " + stamp(c.Taken), true
}

// user says what is wrong with the VMI that the device is taken for: it does not come, or
// is gone.
func (c *custody) user() *Finding {
	values := Values{"device": c.Name, "vmi": c.VMI, "since": stamp(c.Taken), "namespace": c.Namespace}
	switch {
	case c.VMIUID == "" && c.At.Sub(c.Taken) > startsWithin:
		f := New("GPU0641", c.object(), values)
		return &f
	case c.VMIUID != "" && c.MachinesKnown && !c.alive():
		f := New("GPU0642", c.object(), values)
		return &f
	}
	return nil
}

// alive reports that the VMI which has the device is there. UIDs count where both are
// known.
func (c *custody) alive() bool {
	return slices.ContainsFunc(c.VMs, func(v VM) bool {
		same := v.UID == c.VMIUID || v.UID == "" || strings.HasPrefix(v.UID, "[") || strings.HasPrefix(c.VMIUID, "[")
		return v.Namespace == c.Namespace && v.Name == c.VMI && v.Phase != "" && same
	})
}

// stamp is a time as findings have it.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "an unknown time"
	}
	return t.UTC().Format("2006-01-02 15:04:05 UTC")
}
