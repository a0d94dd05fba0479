package discover

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// a5000 is a card with two VFs, the second past device 0.
func a5000() gpu.Host {
	id := gpu.NVIDIA(0x2231)
	return gpu.Host{Functions: []gpu.Function{
		fn("0000:3b:00.0", id, three, "nvidia", gpu.Group{}),
		fn("0000:3b:00.4", id, three, "nvidia", gpu.Group{}),
		fn("0000:3b:01.0", id, three, "nvidia", gpu.Group{}),
	}}
}

func TestApplyVF(t *testing.T) {
	const (
		pf  = "0000:3b:00.0 0302 10de:2231 nvidia group=unknown"
		vf4 = "0000:3b:00.4 0302 10de:2231 nvidia group=unknown"
		vf8 = "0000:3b:01.0 0302 10de:2231 nvidia group=unknown"
		of  = " pf=0000:3b:00.0 vf"
	)
	for name, tc := range map[string]struct {
		text         []byte
		want         []string
		wantWarnings []string
	}{
		"with physical functions": {text: text("0000:3b:00.4\tphysfn=0000:3b:00.0", "0000:3b:01.0\tphysfn=0000:3b:00.0"), want: []string{pf, vf4 + of, vf8 + of}},
		"bare":                    {text: text("# VFs", "0000:3b:00.4", "3b:01.0"), want: []string{pf, vf4 + " vf", vf8 + " vf"}},
		"header":                  {text: text("address\tphysfn", "0000:3b:00.4\t0000:3b:00.0"), want: []string{pf, vf4 + of, vf8}},
		"listing of links":        {text: text("/sys/bus/pci/devices/0000:3b:00.4/physfn -> ../0000:3b:00.0", "/sys/bus/pci/devices/0000:3b:00.0/virtfn1 -> ../0000:3b:01.0"), want: []string{pf, vf4 + of, vf8 + of}},
		"empty: there are none":   {text: nil, want: []string{pf, vf4, vf8}},
		"one that lspci lacks":    {text: text("0000:3b:00.4", "0000:3b:00.5"), want: []string{pf, vf4 + " vf", vf8}, wantWarnings: []string{"line 2: the lspci text does not list virtual function 0000:3b:00.5"}},
	} {
		t.Run(name, func(t *testing.T) {
			h := a5000()
			warnings, err := ApplyVF(&h, tc.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, summary(h)); diff != "" {
				t.Errorf("ApplyVF() (-want +got):\n%s", diff)
			}
			checkParts(t, warnings, tc.wantWarnings)
		})
	}
}

func TestApplyVFErrors(t *testing.T) {
	for name, bad := range map[string]string{
		"no address":                 "gpu0",
		"physical function is none":  "0000:3b:00.4 physfn=0000:3b:00",
		"its own physical function":  "0000:3b:00.4 physfn=0000:3b:00.4",
		"three addresses":            "0000:3b:00.4 0000:3b:00.0 0000:3b:00.5",
		"trailing words":             "0000:3b:00.4 is a VF",
		"physical function is empty": "0000:3b:00.4 physfn=",
	} {
		t.Run(name, func(t *testing.T) {
			h := a5000()
			_, err := ApplyVF(&h, text("0000:3b:01.0", bad))
			if err == nil || !strings.Contains(err.Error(), "line 2") || !strings.Contains(err.Error(), bad) {
				t.Errorf("ApplyVF() error %v, want one that names line 2 and %q", err, bad)
			}
			if diff := cmp.Diff(a5000(), h, compareGroups()); diff != "" {
				t.Errorf("a refused text changes the host (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGuessVFs(t *testing.T) {
	id, other := gpu.NVIDIA(0x2231), gpu.NVIDIA(0x2236)
	for name, tc := range map[string]struct {
		functions []gpu.Function
		want      []string // addresses of VFs
	}{
		"VFs on and past device 0": {functions: a5000().Functions, want: []string{"0000:3b:00.4", "0000:3b:01.0"}},
		"two identical cards": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, three, "nvidia", gpu.Group{}), fn("0000:3c:00.0", id, three, "nvidia", gpu.Group{}),
		}},
		"two domains": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, three, "nvidia", gpu.Group{}), fn("0001:3b:00.4", id, three, "nvidia", gpu.Group{}),
		}},
		"another id beside it": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, three, "nvidia", gpu.Group{}), fn("0000:3b:00.4", other, three, "nvidia", gpu.Group{}),
		}},
		"on another driver": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, three, "vfio-pci", gpu.Group{}), fn("0000:3b:00.4", id, three, "vfio-pci", gpu.Group{}),
		}},
		"no display controller": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, 0x068000, "nvidia", gpu.Group{}), fn("0000:3b:00.4", id, 0x068000, "nvidia", gpu.Group{}),
		}},
		"no display controller beside one": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, three, "nvidia", gpu.Group{}), fn("0000:3b:00.4", id, 0x068000, "nvidia", gpu.Group{}),
		}},
		"a display controller beside none": {functions: []gpu.Function{
			fn("0000:3b:00.0", id, 0x068000, "nvidia", gpu.Group{}), fn("0000:3b:00.4", id, three, "nvidia", gpu.Group{}),
		}},
		"GPUs of a virtual machine, side by side on bus 0": {functions: []gpu.Function{
			fn("0000:00:04.0", id, three, "nvidia", gpu.Group{}), fn("0000:00:05.0", id, three, "nvidia", gpu.Group{}),
		}},
		"no ids at all": {functions: []gpu.Function{
			fn("0000:3b:00.0", gpu.ID{}, three, "nvidia", gpu.Group{}), fn("0000:3b:00.4", gpu.ID{}, three, "nvidia", gpu.Group{}),
		}},
	} {
		t.Run(name, func(t *testing.T) {
			h := gpu.Host{Functions: tc.functions}
			GuessVFs(&h)
			var got []string
			for _, f := range h.Functions {
				if f.VF != f.VFGuessed || f.VF != (f.PhysFn != nil) {
					t.Errorf("%s: VF %v, guessed %v, physical function %v", f.Address, f.VF, f.VFGuessed, f.PhysFn)
				}
				if f.VF {
					got = append(got, f.Address.String())
				}
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("GuessVFs() (-want +got):\n%s", diff)
			}
		})
	}
}
