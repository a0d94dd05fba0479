package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// completionPatience is how long somebody who presses tab waits for a cluster.
const completionPatience = 2 * time.Second

// failOn is the severity from which findings make a command end with exit code 3.
type failOn struct{ level string }

// levels are what --fail-on takes: the severities, and never.
var levels = []string{"never", "error", "warning", "info"}

func (f *failOn) flag(cmd *cobra.Command) {
	f.level = string(diagnose.Error)
	cmd.Flags().Var(f, "fail-on", "end with exit code 3 when there is a finding of this severity or worse: "+strings.Join(levels, ", "))
	_ = cmd.RegisterFlagCompletionFunc("fail-on", cobra.FixedCompletions(levels, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (f *failOn) String() string { return f.level }

// Type implements pflag.Value.
func (f *failOn) Type() string { return "severity" }

// Set implements pflag.Value.
func (f *failOn) Set(v string) error {
	if !slices.Contains(levels, v) {
		return fmt.Errorf("unknown severity, want one of %s", strings.Join(levels, ", "))
	}
	f.level = v
	return nil
}

// foundError says that findings are as bad as --fail-on asks for. They have been
// printed.
type foundError struct{ error }

func (f *failOn) check(findings []diagnose.Finding) error {
	if f.level == "never" {
		return nil
	}
	for _, x := range findings {
		if x.Severity.Level() >= diagnose.Severity(f.level).Level() {
			return foundError{fmt.Errorf("there are findings of severity %s or worse", f.level)}
		}
	}
	return nil
}
