// Command status times gpuctl status on a real API server that holds a large
// cluster. Everything is measured in turn, in one run: gpuctl, the bare lists that
// nobody can be faster than, and kubectl.
//
//	go run ./test/bench/status -gpuctl bin/gpuctl
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
	"strconv"
	"time"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// options are what the flags say.
type options struct {
	gpuctl string
	size   size
	rounds int
	keep   bool
	bare   string // the kubeconfig of a process that only lists
	seed   string // and of one that only makes the objects
}

func main() {
	var o options
	flag.StringVar(&o.gpuctl, "gpuctl", "bin/gpuctl", "the gpuctl binary to time")
	flag.IntVar(&o.size.nodes, "nodes", 500, "nodes of the cluster")
	flag.IntVar(&o.size.gpus, "gpus", 8, "GPUs of each node")
	flag.IntVar(&o.size.vms, "vms", 2000, "VMs; half of them run")
	flag.IntVar(&o.size.pods, "pods", 3000, "pods that have nothing to do with GPUs")
	flag.IntVar(&o.rounds, "rounds", 7, "timed rounds")
	flag.BoolVar(&o.keep, "keep", false, "leave the cluster running until Ctrl-C")
	flag.StringVar(&o.bare, "bare", "", "only list what status lists, with this kubeconfig")
	flag.StringVar(&o.seed, "seed", "", "only make the objects, with this kubeconfig")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, &o); err != nil {
		fmt.Fprintln(os.Stderr, "status:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o *options) error {
	switch {
	case o.bare != "":
		return listBare(ctx, o.bare)
	case o.seed != "":
		return seed(ctx, o.seed, o.size)
	}
	if o.rounds < 1 || o.size.nodes < 1 || o.size.gpus < 1 {
		return fmt.Errorf("time %d rounds on %d nodes of %d GPUs: want at least 1 each", o.rounds, o.size.nodes, o.size.gpus)
	}
	var err error
	if o.gpuctl, err = filepath.Abs(o.gpuctl); err != nil {
		return err
	}
	return cluster.Use(ctx, os.Stderr, func(ctx context.Context, c cluster.Running) error {
		return o.measure(ctx, out, c)
	}, cluster.APIOnly())
}

func (o *options) measure(ctx context.Context, out io.Writer, c cluster.Running) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	began := time.Now()
	// In another process: what this one once held, Linux counts as its children's.
	seeder := exec.CommandContext(ctx, self, "-seed", c.Kubeconfig, "-nodes", strconv.Itoa(o.size.nodes),
		"-gpus", strconv.Itoa(o.size.gpus), "-vms", strconv.Itoa(o.size.vms), "-pods", strconv.Itoa(o.size.pods))
	if output, err := seeder.CombinedOutput(); err != nil {
		return fmt.Errorf("make the objects: %w: %s", err, output)
	}
	fmt.Fprintf(os.Stderr, "status: made the objects in %s; export KUBECONFIG=%s\n", time.Since(began).Round(time.Second), c.Kubeconfig)
	fmt.Fprintf(out, "%s %s/%s, %d processors; %d nodes, %d GPUs, %d VMs; %d rounds in turn\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.size.nodes, o.size.nodes*o.size.gpus, o.size.vms, o.rounds)
	commands := []command{
		{name: "gpuctl status -o json", argv: []string{o.gpuctl, "status", "-o", "json"}},
		{name: "the bare lists, not decoded", argv: []string{self, "-bare", c.Kubeconfig}},
		{name: "kubectl get nodes,vm,vmi,pods -A -o json", argv: []string{c.Kubectl, "get", "nodes,vm,vmi,pods", "-A", "-o", "json"}},
	}
	if err := compare(ctx, out, commands, c.Kubeconfig, o.rounds); err != nil {
		return err
	}
	if err := countRequests(ctx, out, c.Config, commands[0].argv); err != nil {
		return err
	}
	if o.keep {
		fmt.Fprintln(os.Stderr, "status: the cluster is kept until Ctrl-C")
		<-ctx.Done()
	}
	return nil
}
