package gpu_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

func TestDerive(t *testing.T) {
	tests := map[string]struct{ in, want string }{
		"brackets go, their blanks stay":   {"GA107GL [A2 / A16]", "GA107GL_A2___A16"},
		"a hyphen leaves nothing":          {"AD106M [GeForce RTX 4070 Max-Q / Mobile]", "AD106M_GEFORCE_RTX_4070_MAXQ___MOBILE"},
		"a slash without blanks":           {"Quadro FX 3450/4000", "QUADRO_FX_3450_4000"},
		"dots":                             {"USB 3.1 Host", "USB_3_1_HOST"},
		"a blank before a bracket":         {"GA104 [RTX A4500 Embedded GPU ]", "GA104_RTX_A4500_EMBEDDED_GPU_"},
		"runs of white space":              {" a \t\n b ", "A_B"},
		"a no-break space is no blank":     {"A\u00a0B", "AB"},
		"but is trimmed at the ends":       {"\u00a0AB\u00a0", "AB"},
		"neither is a vertical tab":        {"A\vB", "AB"},
		"letters outside ASCII":            {"Größe", "GRE"},
		"a letter that upper-cases to one": {"ſſ", "SS"},
		"nothing left":                     {"[-]", ""},
		"empty":                            {"", ""},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := gpu.Derive(tc.in); got != tc.want {
				t.Errorf("Derive(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

func TestMdevResource(t *testing.T) {
	tests := map[string]struct {
		in   string
		want gpu.ResourceName
	}{
		"case and hyphens stay":   {"NVIDIA RTX5000-Ada-8Q", "nvidia.com/NVIDIA_RTX5000-Ada-8Q"},
		"runs of white space":     {"GRID  T4-16Q", "nvidia.com/GRID_T4-16Q"},
		"a file's newline":        {"NVIDIA A10-12Q\n", "nvidia.com/NVIDIA_A10-12Q"},
		"a blank at the end does": {"NVIDIA A10-12Q \n", "nvidia.com/NVIDIA_A10-12Q_"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := gpu.MdevResource(tc.in); got != tc.want {
				t.Errorf("MdevResource(%q) = %q, want %q", tc.in, got, tc.want)
			}
		})
	}
}

// FuzzDerive compares with the steps as the plugin takes them.
func FuzzDerive(f *testing.F) {
	f.Add("GA107GL [A2 / A16]")
	f.Add(" \x00\u0130\u2028.\xff/ ")
	blanks, others := regexp.MustCompile(`\s+`), regexp.MustCompile("[^a-zA-Z0-9_.]+")
	f.Fuzz(func(t *testing.T, in string) {
		want := strings.ToUpper(strings.TrimSpace(in))
		want = strings.ReplaceAll(strings.ReplaceAll(want, "/", "_"), ".", "_")
		want = others.ReplaceAllString(blanks.ReplaceAllString(want, "_"), "")
		if got := gpu.Derive(in); got != want {
			t.Errorf("Derive(%q) = %q, want %q", in, got, want)
		}
	})
}
