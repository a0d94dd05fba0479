package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestNames starts gpuctl under the file names that kubectl, krew, containers and
// people start it under.
func TestNames(t *testing.T) {
	type names struct{ Command, Shown string }
	own, kubectl := names{"gpuctl", "gpuctl wire"}, names{"kubectl-gpuctl", "kubectl gpuctl wire"}
	tests := map[string]struct {
		program string
		want    names
	}{
		"on PATH":                                {"gpuctl", own},
		"in the image":                           {"/ko-app/gpuctl", own},
		"on Windows":                             {"gpuctl.exe", own},
		"no name at all":                         {"", own},
		"a copy with its version":                {"./gpuctl-0.1.0", own},
		"in a folder called as kubectl's plugin": {"/opt/kubectl-gpuctl/gpuctl", own},
		"the completion helper":                  {"kubectl_complete-gpuctl", own},
		"another plugin's prefix":                {"kubectl-gpuctl-next", own},
		"kubectl's plugin on PATH":               {"kubectl-gpuctl", kubectl},
		"krew's link":                            {"/home/me/.krew/bin/kubectl-gpuctl", kubectl},
		"kubectl's plugin on Windows":            {"kubectl-gpuctl.exe", kubectl},
		"Windows shouts":                         {"KUBECTL-GPUCTL.EXE", kubectl},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			root := newRoot(&streams{})
			nameAfter(tc.program, root)
			wire, _, err := root.Find([]string{"wire"})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, names{root.Name(), wire.CommandPath()}); diff != "" {
				t.Errorf("names of %q (-want +got):\n%s", tc.program, diff)
			}
		})
	}
}
