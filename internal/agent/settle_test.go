package agent

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func card(bus uint8, driver gpu.Driver) gpu.Function {
	return gpu.Function{Address: gpu.Address{Bus: bus}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: driver}
}

func host(functions ...gpu.Function) gpu.Host { return gpu.Host{Functions: functions} }

func TestSettle(t *testing.T) {
	other := card(1, "")
	other.ID = gpu.NVIDIA(0x20b5)
	// looks are a minute apart; the hold is two minutes. The first is reported as
	// it is.
	tests := map[string]struct{ looks, want []gpu.Host }{
		"vfio-manager unbinds and binds": {
			looks: []gpu.Host{host(card(1, "vfio-pci")), host(card(1, "")), host(card(1, "vfio-pci"))},
			want:  []gpu.Host{host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, "vfio-pci"))},
		},
		"a driver that stays away": {
			looks: []gpu.Host{host(card(1, "vfio-pci")), host(card(1, "")), host(card(1, "")), host(card(1, ""))},
			want:  []gpu.Host{host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, ""))},
		},
		"a card off the bus for a moment": {
			looks: []gpu.Host{host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(2, "vfio-pci")), host(card(1, "vfio-pci"), card(2, "vfio-pci"))},
			want: []gpu.Host{
				host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(1, "vfio-pci"), card(2, "vfio-pci")),
			},
		},
		"a card that is gone": {
			looks: []gpu.Host{host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(2, "vfio-pci")), host(card(2, "vfio-pci")), host(card(2, "vfio-pci"))},
			want: []gpu.Host{
				host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(1, "vfio-pci"), card(2, "vfio-pci")), host(card(2, "vfio-pci")),
			},
		},
		"each loss has its own time": {
			looks: []gpu.Host{host(card(1, "vfio-pci")), host(card(1, "")), host(card(1, "vfio-pci")), host(card(1, "")), host(card(1, ""))},
			want: []gpu.Host{
				host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, "vfio-pci")), host(card(1, "vfio-pci")),
			},
		},
		"another driver at once": {
			looks: []gpu.Host{host(card(1, "nvidia")), host(card(1, "vfio-pci")), host(card(1, "nvidia"))},
			want:  []gpu.Host{host(card(1, "nvidia")), host(card(1, "vfio-pci")), host(card(1, "nvidia"))},
		},
		"another card at once": {
			looks: []gpu.Host{host(card(1, "vfio-pci")), host(other)},
			want:  []gpu.Host{host(card(1, "vfio-pci")), host(other)},
		},
		"no driver from the start": {
			looks: []gpu.Host{host(card(1, "")), host(card(1, ""))},
			want:  []gpu.Host{host(card(1, "")), host(card(1, ""))},
		},
		"a new card at once": {
			looks: []gpu.Host{host(), host(card(1, ""))},
			want:  []gpu.Host{host(), host(card(1, ""))},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			s := settler{hold: 2 * time.Minute, since: map[gpu.Address]time.Time{}}
			now := time.Unix(0, 0)
			var last *gpu.Host
			for i, look := range tc.looks {
				got := s.settle(now, last, look)
				if diff := cmp.Diff(tc.want[i], got, cmp.AllowUnexported(gpu.Group{})); diff != "" {
					t.Errorf("look %d (-want +got):\n%s", i, diff)
				}
				last, now = &got, now.Add(time.Minute)
			}
		})
	}
}
