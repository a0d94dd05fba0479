// Command idle counts what gpuctl's controller writes to a large cluster in which
// nothing happens but heartbeats. It may renew its Lease, and nothing else: the exit
// code is 1 otherwise.
//
//	go run ./test/bench/idle -gpuctl bin/gpuctl -nodes 500 -minutes 10
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/test/bench/fleet"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// options are what the flags say.
type options struct {
	gpuctl      string
	nodes, gpus int
	minutes     float64
	quiet       time.Duration
	settle      time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.gpuctl, "gpuctl", "bin/gpuctl", "the gpuctl binary to run as the controller")
	flag.IntVar(&o.nodes, "nodes", 500, "nodes of the cluster")
	flag.IntVar(&o.gpus, "gpus", 8, "GPUs of each node")
	flag.Float64Var(&o.minutes, "minutes", 10, "how long writes are counted")
	flag.DurationVar(&o.quiet, "quiet", 30*time.Second, "how long nothing was written when the wiring counts as settled")
	flag.DurationVar(&o.settle, "settle", 5*time.Minute, "how long that may take")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, &o); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer, o *options) error {
	if o.nodes < 1 || o.gpus < 1 || o.minutes <= 0 {
		return fmt.Errorf("watch %d nodes of %d GPUs for %g minutes: want more of each", o.nodes, o.gpus, o.minutes)
	}
	if runtime.GOOS != "linux" {
		return errors.New("the memory and CPU time of processes are read as Linux has them: run this on Linux")
	}
	var err error
	if o.gpuctl, err = filepath.Abs(o.gpuctl); err != nil {
		return err
	}
	return cluster.Use(ctx, os.Stderr, func(ctx context.Context, c cluster.Running) error {
		return o.measure(ctx, out, c)
	}, cluster.APIOnly(), cluster.WithReads())
}

// measure is the recipe.
func (o *options) measure(ctx context.Context, out io.Writer, c cluster.Running) error {
	began := time.Now()
	if err := o.seed(ctx, c.Nodes); err != nil {
		return fmt.Errorf("make the objects: %w", err)
	}
	fmt.Fprintf(os.Stderr, "idle: made %d nodes in %s\n", o.nodes, time.Since(began).Round(time.Second))
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := keepAlive(ctx, cancel, c.Nodes, o.nodes); err != nil {
		return err
	}
	p, err := start(ctx, c, o.gpuctl, cancel)
	defer p.stop()
	if err != nil {
		return err
	}
	began = time.Now()
	if err := o.awaitSettled(ctx, c, p); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "idle: settled after %s; counting for %g minutes\n", time.Since(began).Round(time.Second), o.minutes)
	r, err := p.watch(ctx, c, time.Duration(o.minutes*float64(time.Minute)))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s %s/%s, %d processors; %d nodes, %d GPUs, %d replicas, %s without changes\n",
		runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), o.nodes, o.nodes*o.gpus, len(p), r.lasted.Round(time.Second))
	return r.print(out)
}

// seed makes nodes that all serve their GPUs, in a cluster that permits them. The
// audit log does not have the user who does.
func (o *options) seed(ctx context.Context, config *rest.Config) error {
	client, err := dynamic.NewForConfig(quietly(config))
	if err != nil {
		return err
	}
	f, err := fleet.New(client, o.gpus)
	if err != nil {
		return err
	}
	if err := f.Base(ctx); err != nil {
		return err
	}
	return fleet.InParallel(ctx, o.nodes, f.Node)
}

func quietly(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.WarningHandler = rest.NoWarnings{}
	return config
}

func clientset(config *rest.Config) (*kubernetes.Clientset, error) {
	return kubernetes.NewForConfig(quietly(config))
}
