package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/bundle"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// evidenceFlags say where the evidence of a diagnosis comes from.
type evidenceFlags struct {
	inventoryFlags
	scopeFlags
	files, logs []string
	orders      bool // what orders are judged by is read, too
}

func (f *evidenceFlags) add(cmd *cobra.Command) {
	f.inventoryFlags.add(cmd)
	f.scopeFlags.add(cmd)
	cmd.Flags().StringArrayVarP(&f.files, "filename", "f", nil, "read objects from `PATH`, a file, a folder, a bundle or -, and no cluster (repeatable)")
	cmd.Flags().StringArrayVar(&f.logs, "log", nil, "read `FILE`, the log of a device plugin, of vfio-manager or of a virt-launcher (repeatable)")
}

// check refuses flags that say nothing together.
func (f *evidenceFlags) check() error {
	stdin := 0
	for _, file := range slices.Concat(f.files, f.logs, f.lspci, f.iommu, f.vf) {
		if isStdin(file) {
			stdin++
		}
	}
	switch {
	case stdin > 1:
		return usagef("stdin (-) can be read once only; give files")
	case len(f.files)+len(f.logs) > 0 && f.clusterFlags.given():
		return usagef("-f and --log read files alone: --kubeconfig and --context belong to a live cluster")
	}
	return nil
}

// offline reports whether the evidence is what was given, and no cluster is read.
func (f *evidenceFlags) offline() bool {
	return len(f.files)+len(f.logs) > 0 || f.inventoryFlags.given() && !f.clusterFlags.given()
}

// source is what a diagnosis is made from: documents, and what was pasted beside them.
type material struct {
	docs        []manifest.Document
	notes       []string
	skipped     []manifest.Skipped // documents that are no objects; conditions among them
	inventories map[string]inventory
	logs        []diagnose.Log
	problems    []diagnose.Finding // what could not be read
	at          time.Time          // when the cluster was read; zero for files
	agents      bool               // the documents say which agents report
	control     bool               // and whether a controller runs
	pods        bool               // the documents hold every pod that uses a GPU
	hnc         bool               // HNC is installed, whether any of its objects is among them or not
	plugin      string             // the device plugin's release to assume, as --plugin-version
}

// asOf is the time that ages count to: when the cluster was read.
func (m *material) asOf() time.Time {
	if m.at.IsZero() {
		return time.Now()
	}
	return m.at
}

// fromCluster reads a cluster. What may not be read in all of it is read in the
// namespace.
func (f *evidenceFlags) fromCluster(ctx context.Context, s *streams, client *cluster.Client) (m material, err error) {
	var survey cluster.Survey
	err = s.meanwhile("reading the cluster", func() (err error) {
		look := client.Survey
		if f.orders {
			look = client.SurveyOrders
		}
		survey, err = look(ctx, f.namespaceOr(""))
		return err
	})
	if err != nil {
		return m, err
	}
	inventories, err := f.read(s.in)
	if err != nil {
		return m, err
	}
	return material{inventories: inventories, docs: survey.Docs, problems: survey.Problems, at: survey.At, agents: survey.Agents, control: survey.Control, pods: survey.Pods, hnc: survey.HNC}, nil
}

// fromFiles reads what the flags name.
func (f *evidenceFlags) fromFiles(s *streams) (m material, err error) {
	if m.inventories, err = f.read(s.in); err != nil {
		return m, err
	}
	for _, file := range f.files {
		if file != "-" && bundle.Is(file) {
			if err := m.unpack(file); err != nil {
				return m, err
			}
			continue
		}
		docs, skipped, err := manifest.Load(s.in, file)
		if err != nil {
			return m, err
		}
		m.docs, m.skipped = append(m.docs, docs...), append(m.skipped, skipped...)
	}
	for _, name := range f.logs {
		data, err := readFile(s.in, name)
		if err != nil {
			return m, err
		}
		m.logs = append(m.logs, diagnose.Log{Name: name, Lines: strings.Split(cluster.Scrub(string(data)), "\n")})
	}
	return m, nil
}

// scope puts VMs and orders of files that name no namespace into the one that is asked
// about.
func (f *evidenceFlags) scope(docs []manifest.Document) {
	for i := range docs {
		d := &docs[i]
		meta, _ := d.Object["metadata"].(map[string]any)
		if meta != nil && d.Meta("namespace") == "" && scoped(d.Kind()) {
			meta["namespace"] = f.namespaceOr("default")
		}
	}
}

func scoped(kind string) bool {
	return kind == "GPUDevice" || strings.HasPrefix(kind, "VirtualMachine") && !strings.HasPrefix(kind, "VirtualMachineCluster")
}

// fromObjects is fromFiles where files without any object are a mistake: nothing to say
// about them would read as a healthy cluster.
func (f *evidenceFlags) fromObjects(s *streams) (material, error) {
	m, err := f.fromFiles(s)
	if err != nil || len(f.files) == 0 || len(m.docs)+len(m.logs)+len(m.inventories) > 0 || !m.at.IsZero() {
		return m, err
	}
	rest := (&cluster.Facts{}).Conditions(m.skipped)
	if len(rest) < len(m.skipped) {
		return m, nil // a pasted condition
	}
	for _, skipped := range rest {
		fmt.Fprintln(s.err, "note:", skipped)
	}
	return m, errors.New("the files hold no Kubernetes object; kubectl get kubevirt,nodes,vm,vmi,pods,events -A -o yaml > cluster.yaml has what is looked at, then -f cluster.yaml")
}

// evidence turns the material into what a diagnosis goes by. notes name documents
// that were not read.
func (f *evidenceFlags) evidence(m *material) (e diagnose.Evidence, notes []string, err error) {
	facts, err := cluster.Read(m.docs)
	if err != nil {
		return e, nil, err
	}
	for _, s := range facts.Conditions(m.skipped) {
		notes = append(notes, s.String())
	}
	notes = append(append(notes, m.notes...), facts.Notes...)
	var more []diagnose.Finding
	choose := func(docs []manifest.Document) (patch.Target, error) {
		t, found, err := patch.ChooseToRead(docs)
		more = found
		if errors.Is(err, patch.ErrNoTarget) {
			return patch.Target{}, nil
		}
		return t, err
	}
	given := f.inventoryFlags
	given.plugin = cmp.Or(given.plugin, m.plugin)
	in, read, err := given.inputOf(facts, m.inventories, choose)
	if err != nil {
		return e, notes, err
	}
	e = diagnose.Evidence{
		Nodes: in.Nodes, Hosts: in.Hosts, Release: in.Release, VMs: facts.VMs, Pods: facts.Pods, Devices: facts.Devices,
		Messages: facts.Messages, Logs: m.logs, Legacy: facts.Legacy, At: m.asOf(),
	}
	e.Given = givenNodes(m.inventories, in.Nodes)
	var found []diagnose.Finding
	if e.Wiring, found, err = patch.Examine(in); err != nil {
		return e, notes, fmt.Errorf("examine %s: %w", in.Target.Ref(), err)
	}
	if m.agents {
		agents, err := cluster.AgentsOf(m.docs, m.at)
		if err != nil {
			return e, notes, err
		}
		e.Agents = append([]diagnose.Agent{}, agents...) // none is not the same as not known
	}
	if e.Controller, err = cluster.ControllerOf(m.docs, m.at, m.control); err != nil {
		return e, notes, err
	}
	m.addOrders(&e)
	e.Hook, e.Controller.Last = lastHook(facts.Events), lastWrite(facts.Events)
	e.PodsKnown = m.pods || len(facts.Pods) > 0
	e.Findings = slices.Concat(m.problems, read, more, found)
	return e, notes, nil
}

var (
	byRelease = regexp.MustCompile(`^release (\S+) revision (\S+): `)
	changedIn = regexp.MustCompile(`: (\d+) changed$`)
)

// lastHook returns the last wiring on record, by a release's hook or by hand.
func lastHook(events []cluster.Happening) *diagnose.HookView {
	last := latest(events, func(h *cluster.Happening) bool { return h.By == cluster.WiredBy })
	if last == nil {
		return nil
	}
	v := diagnose.HookView{Result: last.Reason, At: last.At}
	text := last.Text
	if found := byRelease.FindStringSubmatch(text); found != nil {
		v.Release, v.Revision = found[1], found[2]
		text = text[len(found[0]):]
	}
	v.Summary, _, _ = strings.Cut(text, "\n")
	if found := changedIn.FindStringSubmatch(v.Summary); found != nil {
		v.Changes, _ = strconv.Atoi(found[1]) // digits
	}
	return &v
}

// lastWrite returns the controller's last write on record.
func lastWrite(events []cluster.Happening) *diagnose.Action {
	last := latest(events, func(h *cluster.Happening) bool {
		return h.By == cluster.KeptBy && (h.Reason == "Wired" || h.Reason == "WiringRepaired")
	})
	if last == nil {
		return nil
	}
	summary, _, _ := strings.Cut(last.Text, "\n")
	return &diagnose.Action{Reason: last.Reason, At: last.At, Summary: strings.TrimSuffix(summary, ":")}
}

// latest returns the latest of the Events that are looked for.
func latest(events []cluster.Happening, wanted func(*cluster.Happening) bool) (last *cluster.Happening) {
	for i := range events {
		if h := &events[i]; wanted(h) && (last == nil || h.At.After(last.At)) {
			last = h
		}
	}
	return last
}

// givenNodes names the nodes whose inventories were given.
func givenNodes(inventories map[string]inventory, nodes []gpu.Node) []string {
	hosts, _ := assign(inventories, nodes)
	var out []string
	for _, h := range hosts {
		out = append(out, h.Node)
	}
	return out
}
