package discover

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

// TestTextAgreesWithSysfs makes up machines and looks at each twice: as a tree
// and as text.
func TestTextAgreesWithSysfs(t *testing.T) {
	dir := fakesys.New(t, gpu.Host{})
	n := 0
	rapid.Check(t, func(t *rapid.T) {
		n++
		h := drawHost(t)
		root := filepath.Join(dir, strconv.Itoa(n))
		if err := (fakesys.Machine{Host: h}).Build(root); err != nil {
			t.Fatal(err)
		}
		read, _, err := Host(root)
		if err != nil {
			t.Fatal(err)
		}
		style := drawStyle(t)
		p := Pasted{Lspci: File{Data: style.lspci(h)}}
		if rapid.Bool().Draw(t, "IOMMU file") {
			p.IOMMU = File{Data: iommuFile(h)}
		}
		if rapid.Bool().Draw(t, "VF file") {
			p.VF = File{Data: vfFile(h)}
		}
		told, warnings, err := FromText(p)
		if err != nil || len(warnings) > 0 {
			t.Fatalf("FromText(): warnings %q, error %v\n%s", warnings, err, p.Lspci.Data)
		}
		groups, numa := style.verbose > 0 || p.IOMMU.given(), style.verbose > 0
		want := summary(toldOf(read, groups, numa, p.IOMMU.given()))
		got := summary(toldOf(told, groups, numa, p.IOMMU.given()))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("sysfs and text differ (-sysfs +text):\n%s\n%s", diff, p.Lspci.Data)
		}
	})
}

// toldOf reduces a host to what its text shows. Without an IOMMU file a
// function without a group cannot be told from one whose group is not shown.
func toldOf(h gpu.Host, groups, numa, all bool) gpu.Host {
	var out gpu.Host
	for _, f := range h.Functions {
		if !groups || f.Group.None() && !all {
			f.Group = gpu.Group{}
		}
		if !numa || !f.IsNVIDIA() {
			f.NUMA = nil
		}
		f.VFGuessed = false
		out.Functions = append(out.Functions, f)
	}
	return out
}

func drawHost(t *rapid.T) gpu.Host {
	var h gpu.Host
	buses := rapid.SliceOfNDistinct(rapid.IntRange(0, 255), 1, 4, rapid.ID).Draw(t, "buses")
	for _, bus := range buses {
		a := gpu.Address{Domain: rapid.SampledFrom([]uint32{0, 0, 8, 0x10000}).Draw(t, "domain"), Bus: uint8(bus)}
		if rapid.Bool().Draw(t, "card") {
			h.Functions = append(h.Functions, drawCard(t, a)...)
			continue
		}
		h.Functions = append(h.Functions, gpu.Function{
			Address: a, ID: gpu.ID{Vendor: 0x8086, Device: 0x1901}, Class: rapid.SampledFrom([]gpu.Class{0x060400, 0x020000, 0x0c0330, 0xffff00}).Draw(t, "class"),
			Driver: rapid.SampledFrom([]gpu.Driver{"", "pcieport", "vfio-pci"}).Draw(t, "driver"), Group: drawGroup(t), NUMA: drawNUMA(t),
		})
	}
	h.Sort()
	return h
}

// drawCard is a GPU with siblings or with virtual functions.
func drawCard(t *rapid.T, a gpu.Address) []gpu.Function {
	card := gpu.Function{
		Address: a, ID: gpu.NVIDIA(rapid.SampledFrom([]gpu.DeviceID{0x2335, 0x2231, 0x1e07}).Draw(t, "device")),
		Class:  rapid.SampledFrom([]gpu.Class{vga, three}).Draw(t, "class"),
		Driver: rapid.SampledFrom([]gpu.Driver{"", "nvidia", "nouveau", "vfio-pci", "nvgrace_gpu_vfio_pci"}).Draw(t, "driver"),
		Group:  drawGroup(t), NUMA: drawNUMA(t), OffBus: rapid.IntRange(0, 9).Draw(t, "off bus") == 0,
	}
	out := []gpu.Function{card}
	for i := range rapid.IntRange(0, 12).Draw(t, "functions") {
		f := card
		f.OffBus, f.Group = false, drawGroup(t)
		f.Address.Device, f.Address.Function = uint8((i+1)/8), uint8((i+1)%8)
		if card.Driver == "nvidia" {
			f.VF, f.PhysFn = true, &card.Address
		} else {
			f.ID, f.Class, f.Driver = gpu.NVIDIA(0x10f7), audio, rapid.SampledFrom([]gpu.Driver{"", "snd_hda_intel", "vfio-pci"}).Draw(t, "driver")
		}
		out = append(out, f)
	}
	return out
}

func drawGroup(t *rapid.T) gpu.Group {
	if n := rapid.IntRange(-1, 40).Draw(t, "group"); n >= 0 {
		return gpu.InGroup(n)
	}
	return gpu.NoGroup()
}

func drawNUMA(t *rapid.T) *int {
	if n := rapid.IntRange(-1, 1).Draw(t, "NUMA"); n >= 0 {
		return &n
	}
	return nil
}

// style is how lspci was called and what happened to its output since.
type style struct {
	numeric bool
	verbose int
	domains bool
	indent  string
	quote   string
	end     string
}

func drawStyle(t *rapid.T) style {
	return style{
		numeric: rapid.Bool().Draw(t, "-n"), verbose: rapid.IntRange(0, 2).Draw(t, "-v"), domains: rapid.Bool().Draw(t, "-D"),
		indent: rapid.SampledFrom([]string{"\t", "        ", " "}).Draw(t, "indent"),
		quote:  rapid.SampledFrom([]string{"", "> ", ">", "    "}).Draw(t, "quote"),
		end:    rapid.SampledFrom([]string{"\n", "\r\n"}).Draw(t, "line end"),
	}
}

func (s style) lspci(h gpu.Host) []byte {
	domains := s.domains || slices.ContainsFunc(h.Functions, func(f gpu.Function) bool { return f.Address.Domain != 0 })
	var b strings.Builder
	put := func(format string, args ...any) {
		b.WriteString(s.quote + fmt.Sprintf(format, args...) + s.end)
	}
	for _, f := range h.Functions {
		address := f.Address.String()
		if !domains {
			address = strings.TrimPrefix(address, "0000:")
		}
		rev := "(rev a1)"
		if f.OffBus {
			rev = "(rev ff)"
		}
		if s.numeric {
			put("%s %s: %s %s", address, f.Class, f.ID, rev)
		} else {
			put("%s Some controller [%s]: Vendor, Inc. [AMD/ATI] GH100 [Some Name] [%s] %s", address, f.Class, f.ID, rev)
		}
		s.details(put, f)
	}
	return []byte(b.String())
}

func (s style) details(put func(string, ...any), f gpu.Function) {
	put("%sSubsystem: NVIDIA Corporation Device [10de:1234]", s.indent)
	group, grouped := f.Group.ID()
	switch {
	case s.verbose == 1:
		flags := "bus master, fast devsel, latency 0"
		if f.NUMA != nil {
			flags += fmt.Sprintf(", NUMA node %d", *f.NUMA)
		}
		if grouped {
			flags += fmt.Sprintf(", IOMMU group %d", group)
		}
		put("%sFlags: %s", s.indent, flags)
	case s.verbose > 1:
		if f.NUMA != nil {
			put("%sNUMA node: %d", s.indent, *f.NUMA)
		}
		if grouped {
			put("%sIOMMU group: %d", s.indent, group)
		}
	}
	if f.Driver != "" {
		put("%sKernel driver in use: %s", s.indent, f.Driver)
	}
	if s.verbose > 0 {
		put("")
	}
}

func iommuFile(h gpu.Host) []byte {
	out := []byte{}
	for _, f := range h.Functions {
		if id, ok := f.Group.ID(); ok {
			out = fmt.Appendf(out, "%s\t%d\n", f.Address, id)
		}
	}
	return out
}

func vfFile(h gpu.Host) []byte {
	out := []byte{}
	for _, f := range h.Functions {
		if f.PhysFn != nil {
			out = fmt.Appendf(out, "%s\tphysfn=%s\n", f.Address, f.PhysFn)
		}
	}
	return out
}

// TestRealLspci has pciutils print every machine, in every way people do.
func TestRealLspci(t *testing.T) {
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		t.Skip("lspci is not installed")
	}
	for name, h := range machines() {
		root := fakesys.New(t, h)
		read, _, err := Host(root)
		if err != nil {
			t.Fatal(err)
		}
		for _, flags := range []string{"-nnk", "-nk", "-nnkD", "-nnv", "-nnvv", "-nnvvv"} {
			t.Run(name+" "+flags, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), lspci, "-O", "sysfs.path="+root+"/sys/bus/pci", flags)
				out, err := cmd.Output()
				if err != nil {
					t.Fatal(err)
				}
				told, warnings, err := FromText(Pasted{Lspci: File{Data: out}, VF: File{Data: vfFile(h)}})
				if err != nil || len(warnings) > 0 {
					t.Fatalf("FromText(): warnings %q, error %v", warnings, err)
				}
				verbose := strings.Contains(flags, "v")
				want := summary(toldOf(asPrinted(read, flags), verbose, verbose, false))
				got := summary(toldOf(told, verbose, verbose, false))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("sysfs and lspci differ (-sysfs +lspci):\n%s", diff)
				}
			})
		}
	}
}

// asPrinted allows for pciutils' way with a function off the bus: only -v says
// so, and only -vv goes on to what stands behind the header, such as the group.
func asPrinted(h gpu.Host, flags string) gpu.Host {
	h.Functions = slices.Clone(h.Functions)
	for i := range h.Functions {
		f := &h.Functions[i]
		if !f.OffBus {
			continue
		}
		f.OffBus = strings.Contains(flags, "v")
		if !strings.Contains(flags, "vv") {
			f.Group, f.NUMA = gpu.Group{}, nil
		}
	}
	return h
}
