package main

import (
	"strings"
	"testing"
)

func TestRender(t *testing.T) {
	drift := map[string][]string{
		"2330": {"2330", "OLD", "NEW", "NEW", "NEW", "NEW", "NEW"},
		"002a": {"TNT2", "TNT2", "TNT2", "TNT2", "TNT2", "TNT2", "002a"},
		"24fa": {"24fa", "GPU_", "GPU_", "GPU_", "GPU_", "GPU_", "GPU"},
	}
	latest := map[string]string{"0008": "NV1", "2330": "NEW", "24fa": "GPU"}
	got, err := render(latest, drift)
	want := "0008\tNV1\n002a\tTNT2\t\t\t\t\t\t-\n2330\t-\tOLD\tNEW\n24fa\t-\tGPU_\t\t\t\t\tGPU\n"
	if err != nil || string(got) != want {
		t.Errorf("render = %q, %v, want %q", got, err, want)
	}
}

func TestRenderRefusesContradictions(t *testing.T) {
	row := []string{"A", "A", "A", "A", "A", "A", "B"}
	for name, latest := range map[string]map[string]string{
		"another name": {"2330": "C"},
		"no name":      {},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render(latest, map[string][]string{"2330": row})
			if err == nil || !strings.Contains(err.Error(), "merge 2330") {
				t.Errorf("render: %v", err)
			}
		})
	}
}
