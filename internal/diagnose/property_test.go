package diagnose

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// shuffled returns the list in an order that the seed says.
func shuffled[T any](list []T, seed uint64) []T {
	out := slices.Clone(list)
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
	return out
}

func findings() *rapid.Generator[[]Finding] {
	codes := []Code{"GPU9999"}
	for _, e := range Catalog() {
		codes = append(codes, e.Code)
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Finding {
		return Finding{
			Code:     rapid.SampledFrom(codes).Draw(t, "code"),
			Severity: rapid.SampledFrom([]Severity{Info, Warning, Error}).Draw(t, "severity"),
			Object:   rapid.SampledFrom([]string{"node/a", "node/b", ""}).Draw(t, "object"),
			Message:  rapid.SampledFrom([]string{"x", "y"}).Draw(t, "message"),
			Hint:     rapid.SampledFrom([]string{"", "do"}).Draw(t, "hint"),
		}
	}), 0, 40)
}

func TestSortCausalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := findings().Draw(t, "findings")
		want := SortCausal(slices.Clone(in))
		got := SortCausal(shuffled(in, rapid.Uint64().Draw(t, "seed")))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("it hangs on the order of the input (-as given +shuffled):\n%s", diff)
		}
		if diff := cmp.Diff(want, SortCausal(slices.Clone(want))); diff != "" {
			t.Fatalf("sorting twice (-once +twice):\n%s", diff)
		}
		for i := 1; i < len(want); i++ {
			a, b := want[i-1], want[i]
			if a.Severity.Level() < b.Severity.Level() || a.Severity == b.Severity && a.link().order() > b.link().order() {
				t.Fatalf("%v stands before %v", a, b)
			}
		}
		for _, f := range in { // nothing is lost, and what differs in severity is the gravest
			if !slices.ContainsFunc(want, func(w Finding) bool {
				return w.Code == f.Code && w.Object == f.Object && w.Message == f.Message && w.Severity.Level() >= f.Severity.Level()
			}) {
				t.Fatalf("%v is lost", f)
			}
		}
	})
}

const (
	a10  = gpu.ResourceName("nvidia.com/GA102GL_A10")
	h200 = gpu.ResourceName("nvidia.com/GH100_H200_SXM_141GB")
)

// said are messages of all kinds, among them what says nothing.
func saidTexts() []string {
	return []string{
		"", "\x00\xff", `\n\n`, "Guest VM is not reported as running",
		"failed to render launch manifest: GPU " + string(a10) + " is not permitted in permittedHostDevices configuration",
		"GPU  is not permitted in permittedHostDevices configuration",
		"Host Devices feature gate is not enabled in kubevirt-config",
		"0/2 nodes are available: 2 Insufficient " + string(h200) + ".", "0/2 nodes are available: 2 Insufficient memory.",
		synced("number of GPU/s do not match"), refused("vfio 0000:41:00.0: group 99999999999999999999 is not viable"),
		fromLibvirt("cannot limit locked memory of process 1"), "pods is forbidden: exceeded quota", "UnexpectedAdmissionError",
		"the number of DRA GPU/s do not match the number of devices", "vfio 0000:41:00.0: no iommu_group found",
	}
}

// evidences draws clusters, odd ones too: a node without a name, an instance on a
// node that is not there, counts below zero.
func evidences() *rapid.Generator[Evidence] {
	return rapid.Custom(func(t *rapid.T) Evidence {
		var e Evidence
		names := rapid.SampledFrom([]gpu.ResourceName{a10, h200, "nvidia.com/gpu", "nvidia.com/GA102GL_a10", "intel.com/qat", "h200", "", "nvidia.com/NVIDIA_A10-4Q"})
		counts := func(label string) map[gpu.ResourceName]int64 {
			return rapid.MapOfN(names, rapid.Int64Range(-1, 4), 0, 3).Draw(t, label)
		}
		for i := range rapid.IntRange(0, 4).Draw(t, "nodes") {
			n := gpu.Node{Name: fmt.Sprintf("n%d", i), Allocatable: counts("allocatable"), Capacity: counts("capacity"), Labels: map[string]string{}}
			n.NotReady, n.Cordoned = rapid.Bool().Draw(t, "not ready"), rapid.Bool().Draw(t, "cordoned")
			if rapid.Bool().Draw(t, "meant") {
				n.Labels[workloadConfigLabel] = rapid.SampledFrom([]string{"vm-passthrough", "vm-vgpu", "container"}).Draw(t, "mode")
			}
			if i == 3 {
				n.Name = ""
			}
			e.Nodes = append(e.Nodes, n)
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "hosts") {
			e.Hosts = append(e.Hosts, hostOf(t, fmt.Sprintf("n%d", i+1)))
		}
		machinesOf(t, &e, names, counts)
		if rapid.Bool().Draw(t, "wired") {
			e.Wiring = &Wiring{Object: "KubeVirt kubevirt/kubevirt", NeedsGate: rapid.Bool().Draw(t, "needs gate"), Gate: rapid.Bool().Draw(t, "gate")}
			e.Wiring.Table.Set = rapid.Bool().Draw(t, "table")
			for range rapid.IntRange(0, 3).Draw(t, "entries") {
				e.Wiring.Table.Entries = append(e.Wiring.Table.Entries, gpu.Entry{
					List: gpu.ListPCI, Selector: rapid.SampledFrom([]string{"10DE:2335", "10de:2236", "x", ""}).Draw(t, "selector"), Name: names.Draw(t, "permitted"),
				})
			}
		}
		e.Findings = findings().Draw(t, "findings")
		return e
	})
}

func hostOf(t *rapid.T, node string) gpu.Host {
	h := gpu.Host{Node: node}
	for i := range rapid.IntRange(0, 4).Draw(t, "functions") {
		h.Functions = append(h.Functions, gpu.Function{
			Address: gpu.Address{Bus: uint8(0x41 + i)}, ID: gpu.NVIDIA(rapid.SampledFrom([]gpu.DeviceID{0x2335, 0x2236, 0x22a3}).Draw(t, "id")), Class: 0x030200,
			Driver: rapid.SampledFrom([]gpu.Driver{"vfio-pci", "nvidia", ""}).Draw(t, "driver"),
			Group:  rapid.SampledFrom([]gpu.Group{{}, gpu.NoGroup(), gpu.InGroup(1), gpu.InGroup(2)}).Draw(t, "group"),
			OffBus: rapid.Bool().Draw(t, "off"),
		})
	}
	return h
}

func machinesOf(t *rapid.T, e *Evidence, names *rapid.Generator[gpu.ResourceName], counts func(string) map[gpu.ResourceName]int64) {
	now := time.Date(2026, 6, 28, 10, 0, 0, 0, time.UTC)
	refs := []Ref{{}, {"Node", "", "n0"}, {"Pod", "t", "virt-launcher-vm0-abcde"}, {"Pod", "t", "virt-launcher-"}, {"VirtualMachineInstance", "t", "ghost"}, {"VirtualMachine", "t", "ghost"}}
	for i := range rapid.IntRange(0, 3).Draw(t, "machines") {
		v := VM{Ref: Ref{rapid.SampledFrom([]string{"VirtualMachine", "VirtualMachineInstance"}).Draw(t, "kind"), "t", fmt.Sprintf("vm%d", i)}}
		for range rapid.IntRange(0, 3).Draw(t, "devices") {
			v.Devices = append(v.Devices, gpu.Device{Field: rapid.SampledFrom([]string{"gpus", "hostDevices"}).Draw(t, "field"), Name: names.Draw(t, "device")})
		}
		v.Phase = rapid.SampledFrom([]string{"", "Pending", "Scheduling", "Scheduled", "Running", "Failed"}).Draw(t, "phase")
		v.Node, v.Halted = rapid.SampledFrom([]string{"", "n0", "gone"}).Draw(t, "on"), rapid.Bool().Draw(t, "halted")
		e.VMs, refs = append(e.VMs, v), append(refs, v.Ref)
	}
	for i := range rapid.IntRange(0, 4).Draw(t, "pods") {
		e.Pods = append(e.Pods, Pod{
			Namespace: "t", Name: fmt.Sprintf("p%d", i), Node: rapid.SampledFrom([]string{"", "n0", "n1", "gone"}).Draw(t, "on"),
			VM: rapid.SampledFrom([]string{"", "vm0", "ghost"}).Draw(t, "of"), Requests: counts("requests"), Done: rapid.Bool().Draw(t, "done"),
			Operand: rapid.SampledFrom([]Operand{"", VFIOManager, DevicePlugin}).Draw(t, "operand"), Problem: rapid.SampledFrom([]string{"", "CrashLoopBackOff"}).Draw(t, "problem"),
			Refused: rapid.SampledFrom([]string{"", "", "OutOfcpu"}).Draw(t, "refused"),
		})
	}
	for range rapid.IntRange(0, 6).Draw(t, "messages") {
		m := Message{About: rapid.SampledFrom(refs).Draw(t, "about"), Text: rapid.SampledFrom(saidTexts()).Draw(t, "text")}
		if after := rapid.IntRange(0, 3).Draw(t, "after"); after > 0 {
			m.At = now.Add(time.Duration(after) * time.Minute)
		}
		e.Messages = append(e.Messages, m)
	}
}

// subjects are the whole cluster and things that are there, or not.
func subjects() []Subject {
	return []Subject{{}, {"vm", "t", "vm0"}, {"vmi", "t", "ghost"}, {"node", "", "n0"}, {"node", "", "gone"}}
}

var leftOver = regexp.MustCompile(`\{[a-z]+\}`)

func TestDiagnoseProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := evidences().Draw(t, "evidence")
		other, seed := e, rapid.Uint64().Draw(t, "seed")
		other.Nodes, other.Hosts, other.VMs = shuffled(e.Nodes, seed), shuffled(e.Hosts, seed), shuffled(e.VMs, seed)
		other.Pods, other.Messages, other.Findings = shuffled(e.Pods, seed), shuffled(e.Messages, seed), shuffled(e.Findings, seed)
		for _, subject := range subjects() {
			want, ok := Diagnose(&e, subject)
			again, okAgain := Diagnose(&e, subject)
			for _, f := range want.Findings {
				if leftOver.MatchString(f.Message + f.Hint) {
					t.Fatalf("a placeholder is left: %+v", f)
				}
			}
			if diff := cmp.Diff(want.Findings, again.Findings); diff != "" || ok != okAgain {
				t.Fatalf("%v: twice the same (-first +second):\n%s", subject, diff)
			}
			got, okOther := Diagnose(&other, subject)
			if diff := cmp.Diff(want.Findings, got.Findings); diff != "" || ok != okOther {
				t.Fatalf("%v: it hangs on the order of the evidence (-as given +shuffled):\n%s", subject, diff)
			}
		}
	})
}

func TestDiagnoseOfNothing(t *testing.T) {
	for name, e := range map[string]Evidence{
		"nothing":             {},
		"empty parts":         {Nodes: []gpu.Node{{}}, Hosts: []gpu.Host{{}}, VMs: []VM{{}}, Pods: []Pod{{}}, Messages: []Message{{}}, Logs: []Log{{}}, Legacy: []Legacy{{}}, Findings: []Finding{{}}},
		"a message alone":     {Messages: []Message{{Text: synced("the number of GPU/s do not match")}}},
		"a launcher alone":    {Messages: []Message{{About: Ref{"Pod", "t", "virt-launcher-x"}, Text: synced("the number of GPU/s do not match")}}},
		"empty wiring":        {Wiring: &Wiring{}, VMs: []VM{{Devices: []gpu.Device{{}}}}},
		"a wiring that lacks": {Wiring: &Wiring{Lacks: []Lack{{Served: true}}}},
	} {
		t.Run(name, func(*testing.T) {
			for _, subject := range subjects() {
				report, _ := Diagnose(&e, subject)
				for _, f := range report.Findings {
					if strings.Contains(f.Message+f.Hint, "{") {
						t.Errorf("a placeholder is left in %+v", f)
					}
				}
			}
		})
	}
}
