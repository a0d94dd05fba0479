// Command bench times gpuctl as a whole process against the tools an operator
// would otherwise use. The commands of one comparison run in turn, so that a
// machine that slows down slows all of them.
//
//	go run ./test/bench -gpuctl bin/gpuctl
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/gpuctl/gpuctl/test/fakesys"
)

const (
	functions = 256 // of the made-up machine
	gpus      = 8
)

func main() {
	gpuctl := flag.String("gpuctl", "bin/gpuctl", "the gpuctl binary to time")
	runs := flag.Int("runs", 40, "timed runs of each command")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, *gpuctl, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, gpuctl string, runs int) error {
	if runs < 1 {
		return fmt.Errorf("time %d runs: want at least 1", runs)
	}
	gpuctl, err := filepath.Abs(gpuctl)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s/%s, %d processors; %d runs of each command in turn; wall milliseconds\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runs)
	for _, compare := range []func(context.Context, string) (comparison, error){startUp, reading} {
		c, err := compare(ctx, gpuctl)
		if err != nil {
			return err
		}
		if c.missing != "" {
			fmt.Fprintf(out, "\n%s: left out: %s\n", c.title, c.missing)
			continue
		}
		series, err := c.measure(ctx, runs)
		c.cleanUp()
		if err != nil {
			return err
		}
		if err := c.print(out, series); err != nil {
			return err
		}
	}
	return nil
}

// startUp compares what a command costs before it does anything.
func startUp(ctx context.Context, gpuctl string) (comparison, error) {
	kubectl, err := buildKubectl(ctx)
	if err != nil {
		return comparison{}, err
	}
	return comparison{
		title: "Start-up",
		commands: []command{
			{name: "gpuctl version", argv: []string{gpuctl, "version"}},
			{name: "kubectl version --client", argv: []string{kubectl, "version", "--client"}},
			{name: "gpuctl --help", argv: []string{gpuctl, "--help"}},
			{name: "kubectl --help", argv: []string{kubectl, "--help"}},
			{name: "gpuctl __complete diagnose ''", argv: []string{gpuctl, "__complete", "diagnose", ""}},
			{name: "kubectl __complete get ''", argv: []string{kubectl, "__complete", "get", ""}},
		},
		cleanUp: func() {},
	}, nil
}

// reading compares what it costs to read one machine's PCI functions.
func reading(_ context.Context, gpuctl string) (comparison, error) {
	c := comparison{title: fmt.Sprintf("Reading PCI: %d functions, %d GPUs", functions, gpus)}
	lspci, err := exec.LookPath("lspci")
	if err != nil {
		c.missing = "lspci is not installed (it comes with pciutils)"
		return c, nil //nolint:nilerr // the comparison says itself what is missing
	}
	tree, err := os.MkdirTemp("", "gpuctl-bench-")
	if err != nil {
		return c, err
	}
	c.cleanUp = func() { _ = os.RemoveAll(tree) }
	machine := fakesys.Machine{Host: fakesys.Dense(functions, gpus)}
	if err := machine.Build(tree); err != nil {
		c.cleanUp()
		return c, fmt.Errorf("build the made-up machine: %w", err)
	}
	c.commands = []command{
		{name: "gpuctl discover", argv: []string{gpuctl, "discover", "--root", tree}, less: "gpuctl version"},
		{name: "gpuctl version", argv: []string{gpuctl, "version"}},
		{name: "lspci -nnk", argv: []string{lspci, "-O", "sysfs.path=" + filepath.Join(tree, "sys/bus/pci"), "-nnk"}},
	}
	return c, nil
}

// buildKubectl returns the path of a kubectl built from the module beside this
// package; the go command leaves a binary that is up to date alone.
func buildKubectl(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	binary := filepath.Join(cache, "gpuctl", "bench", "kubectl")
	build := exec.CommandContext(ctx, "go", "build", "-C", "test/bench/kubectl", "-ldflags", "-s -w", "-o", binary, ".")
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return "", fmt.Errorf("build kubectl: %w", err)
	}
	return binary, nil
}
