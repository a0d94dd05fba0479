package diagnose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Host returns what an operator should know about one host's GPUs. Cards of one
// id in one state share a finding.
func Host(h *gpu.Host, r gpu.Release) []Finding {
	j := newJudge(h, r)
	var out []Finding
	gpus := h.GPUs()
	for _, f := range gpus {
		for _, x := range j.gpuReasons(f) {
			if !oneForMany(x.Code) {
				out = append(out, x)
			}
		}
	}
	out = append(out, j.drivers(gpus)...)
	out = append(out, j.virtuals()...)
	out = append(out, j.switches()...)
	out = append(out, j.pluginNames(gpus)...)
	return out
}

// oneForMany names the findings that Host reports once for all cards alike.
func oneForMany(c Code) bool {
	return c == "GPU0201" || c == "GPU0202" || c == "GPU0203" || c == "GPU0206" || c == "GPU0405"
}

// drivers reports the GPUs that are on no vfio driver or in no IOMMU group, by
// id and driver.
func (j *judge) drivers(gpus []*gpu.Function) []Finding {
	type state struct {
		device gpu.DeviceID
		driver gpu.Driver
		code   Code
	}
	alike := map[state][]*gpu.Function{}
	for _, f := range gpus {
		if x, bad := j.driver(f); bad {
			s := state{f.ID.Device, f.Driver, x.Code}
			alike[s] = append(alike[s], f)
		}
		if f.Group.None() {
			s := state{f.ID.Device, "", "GPU0206"}
			alike[s] = append(alike[s], f)
		}
	}
	var out []Finding
	for s, cards := range alike {
		device := j.describe(cards[0])
		if len(cards) > 1 {
			device = fmt.Sprintf("%d x %s", len(cards), device)
		}
		out = append(out, New(s.code, nodeObject(j.host.Node), Values{
			"address": addresses(cards), "device": device, "driver": string(s.driver),
		}))
	}
	return out
}

func (j *judge) virtuals() []Finding {
	byCard := map[gpu.Address][]*gpu.Function{}
	for i := range j.host.Functions {
		f := &j.host.Functions[i]
		if f.IsNVIDIA() && f.VF {
			card := gpu.Address{}
			if f.PhysFn != nil {
				card = *f.PhysFn
			}
			byCard[card] = append(byCard[card], f)
		}
	}
	var out []Finding
	for _, vfs := range byCard {
		out = append(out, j.virtual(vfs[0], len(vfs)))
	}
	return out
}

func (j *judge) switches() []Finding {
	byID := map[gpu.ID][]*gpu.Function{}
	for i := range j.host.Functions {
		if f := &j.host.Functions[i]; f.IsNVIDIA() && f.Role() == gpu.RoleNVSwitch {
			byID[f.ID] = append(byID[f.ID], f)
		}
	}
	var out []Finding
	for _, s := range byID {
		out = append(out, j.fabric(s))
	}
	return out
}

// pluginNames reports what is special about the host's ids: names that kubelet
// refuses, and Grace's own gate. Names that two ids share are a card's reason.
func (j *judge) pluginNames(gpus []*gpu.Function) []Finding {
	var out []Finding
	seen := map[gpu.DeviceID]bool{}
	for _, f := range gpus {
		n := j.name(f.ID.Device)
		if n.illegal && f.Driver.IsVFIO() && !seen[f.ID.Device] {
			out = append(out, New("GPU0405", nodeObject(j.host.Node), Values{
				"release": j.release.String(), "id": f.ID.Selector(), "name": string(n.name),
			}))
		}
		seen[f.ID.Device] = true
	}
	return append(out, j.grace(gpus)...)
}

func (j *judge) grace(gpus []*gpu.Function) []Finding {
	var out []Finding
	seen := map[gpu.ID]bool{}
	for _, f := range gpus {
		if seen[f.ID] || !f.Driver.IsGraceVFIO() && !j.name(f.ID.Device).grace {
			continue
		}
		seen[f.ID] = true
		out = append(out, New("GPU0211", nodeObject(j.host.Node), Values{"id": f.ID.Selector(), "node": nodeName(j.host.Node)}))
	}
	return out
}

// IsGrace reports Grace Hopper and Grace Blackwell boards. GB300 (31c2) has no
// name yet in any plugin's data.
func IsGrace(d gpu.DeviceID) bool {
	short := gpu.Newest().Name(d).Short()
	return d == 0x31c2 || strings.Contains(short, "GH200") || strings.Contains(short, "GB200") || strings.Contains(short, "GB300")
}

// nodeName names a host in the middle of a sentence, behind "node".
func nodeName(node string) string {
	return cmp.Or(node, "(not named)")
}

// addresses lists the functions, all of up to four, else the first three.
func addresses(fs []*gpu.Function) string {
	var out []string
	for i, f := range fs {
		if i == 3 && len(fs) > 4 {
			return fmt.Sprintf("%s and %d more", strings.Join(out, ", "), len(fs)-i)
		}
		out = append(out, f.Address.String())
	}
	return strings.Join(out, ", ")
}

// JoinIDs returns "10DE:20B1 and 10DE:20F1".
func JoinIDs(ids []gpu.ID) string {
	var out []string
	for _, id := range ids {
		out = append(out, id.Selector())
	}
	slices.Sort(out)
	return strings.Join(out, " and ")
}
