package diagnose

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Controller is what is known of gpuctl's controller. The zero Controller is one of
// which nothing is known.
type Controller struct {
	Known bool         // all that could run is among Runs
	Runs  []Deployment // by namespace and name
	// The rest is what it last said in its GPUWiring.
	Target           string // "KubeVirt kubevirt/kubevirt"
	Wired, Contested *Condition
	Reverts          []Revert
	Last             *Action // its last write on record
}

// Deployment is where a controller is meant to run.
type Deployment struct {
	Namespace, Name string // Name is "" for a controller that somebody started by hand
	Desired, Ready  int
	Leader          string       // the pod of the replica that leads
	Led             gpu.Presence // whether one does
}

// Condition is one condition of an object.
type Condition struct {
	Status  string    `json:"status"` // True, False, Unknown
	Reason  string    `json:"reason"`
	Message string    `json:"message"`
	Since   time.Time `json:"since"`
}

// Action is a write of the controller.
type Action struct {
	Reason  string    `json:"reason"` // Wired, WiringRepaired
	At      time.Time `json:"at"`
	Summary string    `json:"summary"` // its first line
}

// Revert is one time that somebody took away what gpuctl had written.
type Revert struct {
	Manager string // the field manager, "" where the API server has no record
	Lost    string // what was taken away
}

// Who names the field manager, or says that it has no name.
func (r Revert) Who() string {
	return cmp.Or(r.Manager, "somebody whom the API server has not recorded")
}

// Contest says who takes the wiring away again and again.
func Contest(object string, reverts []Revert) Finding {
	var who, what []string
	for _, r := range reverts {
		who, what = append(who, r.Who()), append(what, r.Lost)
	}
	slices.Sort(who)
	slices.Sort(what)
	return New("GPU0333", object, Values{
		"object": object, "managers": strings.Join(slices.Compact(who), ", "), "lost": strings.Join(slices.Compact(what), ", "),
	})
}

// Speaks reports whether what the controller last said still holds: nobody takes it
// back when the controller is gone.
func (c *Controller) Speaks() bool {
	led := slices.ContainsFunc(c.Runs, func(d Deployment) bool { return d.Led != gpu.Absent })
	return led || !c.Known && len(c.Runs) == 0
}

// contested returns the finding about a contest, nil when there is none.
func (c *Controller) contested() *Finding {
	if c.Contested == nil || c.Contested.Status != "True" || !c.Speaks() {
		return nil
	}
	f := Contest(c.target(), c.Reverts)
	if len(c.Reverts) == 0 {
		f.Message = c.Contested.Message
	}
	return &f
}

func (c *Controller) target() string { return cmp.Or(c.Target, "GPUWiring cluster") }

var anyCode = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\bGPU0\d{3}\b`) })

// unwired returns the finding about a target that the controller cannot wire, nil when
// it can, or when what keeps it from that was found without its help.
func (c *Controller) unwired(found []Finding) *Finding {
	is := c.Wired
	if is == nil || is.Status != "False" || !c.Speaks() {
		return nil
	}
	if is.Reason == "BackedOff" && c.contested() != nil {
		return nil
	}
	unseen := func(code string) bool {
		return !slices.ContainsFunc(found, func(f Finding) bool { return string(f.Code) == code })
	}
	causes := anyCode().FindAllString(is.Message, -1)
	if len(causes) > 0 && !slices.ContainsFunc(causes, unseen) {
		return nil
	}
	f := New("GPU0340", c.target(), Values{"object": c.target(), "reason": is.Reason, "text": is.Message, "hint": unwiredHint(is.Reason, causes)})
	return &f
}

func unwiredHint(reason string, causes []string) string {
	switch {
	case reason == "HeldBack":
		return "gpuctl wire --dry-run says how to permit what these VMs use, too"
	case len(causes) > 0:
		return "gpuctl explain " + causes[0] + "; gpuctl wire --dry-run shows what it would write"
	}
	return "it is tried again by itself; kubectl get gpuwiring cluster -o yaml shows for how long it fails"
}

// idle returns the finding about a controller that does not work, nil when it does.
func (d *Deployment) idle() *Finding {
	problem, hint := "", "kubectl -n "+d.Namespace+" describe pods -l app.kubernetes.io/component=controller"
	switch {
	case d.Name == "":
	case d.Desired == 0:
		problem, hint = "it is scaled to zero", "kubectl -n "+d.Namespace+" scale deployment "+d.Name+" --replicas 2"
	case d.Ready == 0:
		problem = "none of its " + count(d.Desired, "replica", "replicas") + " is ready"
	case d.Led == gpu.Absent:
		problem, hint = "nobody leads", "kubectl -n "+d.Namespace+" logs -l app.kubernetes.io/component=controller --prefix --tail 20"
	}
	if problem == "" {
		return nil
	}
	object := Ref{"Deployment", d.Namespace, d.Name}.String()
	f := New("GPU0341", object, Values{"object": object, "problem": problem, "hint": hint})
	return &f
}

// controller reports what the controller says that is not found without it, and a
// controller that does not work. It comes last, since it repeats nothing.
func (d *diagnosis) controller(subject Subject) {
	c := &d.Controller
	atTable := func(f Finding) bool { return f.link() == LinkTable || f.link() == LinkGate }
	if f := c.contested(); f != nil && (subject.Name == "" || slices.ContainsFunc(d.found, atTable)) {
		d.found = append(d.found, *f)
	}
	if subject.Name != "" {
		return
	}
	if f := c.unwired(d.found); f != nil {
		d.found = append(d.found, *f)
	}
	for i := range c.Runs {
		if f := c.Runs[i].idle(); f != nil {
			d.found = append(d.found, *f)
		}
	}
}

// ControllerView is the controller that keeps the wiring true.
type ControllerView struct {
	Known      bool       `json:"known"`      // false when it was not looked for
	Deployment string     `json:"deployment"` // "namespace/name", "" when none is installed
	Ready      int        `json:"ready"`
	Desired    int        `json:"desired"`
	Leader     string     `json:"leader"`    // a pod, "" when nobody leads
	Current    bool       `json:"current"`   // wired and contested still hold
	Wired      *Condition `json:"wired"`     // as it last said, null when it said nothing
	Contested  *Condition `json:"contested"` // the same
	Last       *Action    `json:"last"`      // its last write, null when none is on record
}

// view puts the controller at a glance: of several one that leads, and of those one that
// is installed. One that is gone leads by its Lease for some seconds more.
func (c *Controller) view() ControllerView {
	v := ControllerView{Known: c.Known, Current: c.Speaks(), Wired: c.Wired, Contested: c.Contested, Last: c.Last}
	if len(c.Runs) == 0 {
		return v
	}
	run := &c.Runs[0]
	for i := range c.Runs {
		if c.Runs[i].rank() > run.rank() {
			run = &c.Runs[i]
		}
	}
	if run.Name != "" {
		v.Deployment = run.Namespace + "/" + run.Name
	}
	v.Ready, v.Desired, v.Leader = run.Ready, run.Desired, run.Leader
	return v
}

// rank is how much a controller has to say, among several.
func (d *Deployment) rank() (n int) {
	if d.Led == gpu.Present {
		n += 2
	}
	if d.Name != "" {
		n++
	}
	return n
}
