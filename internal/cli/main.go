// Package cli is gpuctl's command line: one file a command. Commands read their
// input, call the pure packages, and print; stdout carries data, stderr the
// commentary.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/patch"
)

// The exit codes of every command.
const (
	exitOK     = 0
	exitFailed = 1 // failed, or refused
	exitUsage  = 2
	exitFound  = 3   // findings as bad as --fail-on asks for
	exitWaited = 124 // a strict --wait ran out
)

// Main runs gpuctl with the given arguments and returns its exit code. The program
// is the path it was started under: kubectl starts its plugins under their own.
func Main(program string, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	s := &streams{in: stdin, out: stdout, err: stderr}
	root := newRoot(s)
	s.program = nameAfter(program, root)
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return s.exit(root.ExecuteContext(ctx))
}

// streams are the three streams of one run.
type streams struct {
	in       io.Reader
	out, err io.Writer
	program  string // what gpuctl was started as, where that is not gpuctl
}

// usageError is a mistake in the command line itself.
type usageError struct{ error }

// timeoutError says that a strict --wait ran out.
type timeoutError struct{ error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// exit maps an error to an exit code and prints it. It is the only place that
// does either.
func (s *streams) exit(err error) int {
	var usage usageError
	var timeout timeoutError
	var found foundError
	var unfit unfitError
	var refusal *patch.Refusal
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &found): // they were printed
		return exitFound
	case errors.As(err, &unfit): // so was this
		return exitFailed
	case errors.As(err, &refusal):
		_ = s.commentary().Findings(refusal.Findings)
		last := "refused: nothing was changed; see the findings of severity error above"
		if refusal.Written {
			last = "failed: the change is written, and does not do what it should; see the findings of severity error above"
		}
		fmt.Fprintln(s.err, last)
		return exitFailed
	case errors.As(err, &usage):
		fmt.Fprintf(s.err, "error: %v\n", err)
		return exitUsage
	case errors.As(err, &timeout):
		fmt.Fprintf(s.err, "error: %v\n", err)
		return exitWaited
	default:
		fmt.Fprintf(s.err, "error: %v\n", err)
		return exitFailed
	}
}

func newRoot(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "gpuctl",
		Short: "Make NVIDIA GPUs usable in KubeVirt virtual machines",
		Long: `gpuctl makes NVIDIA GPUs usable in KubeVirt virtual machines.

It reads what a host has on its PCI bus, predicts what NVIDIA's device plugin
calls it, and finds what the KubeVirt CR lacks so that VMs can use it.

Exit codes: 0 ok (a pending diff too), 1 failed or refused, 2 usage, 3 findings as
bad as --fail-on asks for (status, diagnose), 124 a strict --wait ran out.`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.NoArgs,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usagef("%w; see: %s --help", err, cmd.CommandPath())
	})
	root.AddCommand(newDiscover(s), newWire(s), newAgent(s), newServe(s), newInstall(s), newUpgrade(s), newUninstall(s), newStatus(s), newClasses(s), newDevices(s), newBindings(s), newSimulate(s), newDiagnose(s), newExplain(s), newVersion(s))
	prepare(root)
	return root
}

// prepare has a command and those below it say of wrong arguments that they are, and
// complete their flags.
func prepare(c *cobra.Command) {
	c.Args = usageArgs(c.Args)
	completeFlags(c)
	for _, sub := range c.Commands() {
		prepare(sub)
	}
}

// usageArgs marks what a command says about its arguments as a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := check(cmd, args); err != nil {
			return usagef("%w; see: %s --help", err, cmd.CommandPath())
		}
		return nil
	}
}
