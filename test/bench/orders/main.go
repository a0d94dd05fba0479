// Command orders measures what orders cost, on real API servers. What is compared takes
// turns, in one run.
//
//	go run ./test/bench/orders           # how fast the binder gives them their units
//	go run ./test/bench/orders webhook   # how much longer judging one takes beside many devices
//	go run ./test/bench/orders starts    # how much longer creating a VMI with devices takes
//	go run ./test/bench/orders memory    # what the leader of a large cluster needs
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// options are what the flags of the binder's measurement say.
type options struct {
	orders, hopeless, nodes, rounds, workers int
	rate                                     int
	length                                   time.Duration
}

// measurement is something that can be measured, once the flags are parsed.
type measurement func(flags *flag.FlagSet) func(context.Context, io.Writer) error

func main() {
	log.SetLogger(logr.Discard())
	what, args := "binder", os.Args[1:]
	if len(args) > 0 && !strings.HasPrefix(args[0], "-") {
		what, args = args[0], args[1:]
	}
	measure, ok := map[string]measurement{"binder": binderFlags, "webhook": webhookFlags, "starts": startsFlags, "memory": memoryFlags}[what]
	if !ok {
		fmt.Fprintf(os.Stderr, "orders: %q cannot be measured: binder, webhook, starts and memory can\n", what)
		os.Exit(2)
	}
	flags := flag.NewFlagSet("orders "+what, flag.ExitOnError)
	run := measure(flags)
	_ = flags.Parse(args) // it exits
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "orders:", err)
		os.Exit(1)
	}
}

func binderFlags(flags *flag.FlagSet) func(context.Context, io.Writer) error {
	var o options
	flags.IntVar(&o.orders, "orders", 200, "orders of one unit in each round")
	flags.IntVar(&o.hopeless, "hopeless", 1000, "orders beside them that nothing can meet")
	flags.IntVar(&o.nodes, "nodes", 100, "nodes, of 8 GPUs each")
	flags.IntVar(&o.rounds, "rounds", 5, "timed rounds of each side")
	flags.IntVar(&o.workers, "workers", 16, "clients at a time")
	flags.IntVar(&o.rate, "rate", 20, "orders a second where each one is timed")
	flags.DurationVar(&o.length, "length", 10*time.Second, "how long they come")
	return o.run
}

func webhookFlags(flags *flag.FlagSet) func(context.Context, io.Writer) error {
	var w webhookOptions
	gpuctlFlag(flags, &w.gpuctl)
	flags.IntVar(&w.nodes, "nodes", 1300, "nodes of each cluster, of 8 GPUs each")
	flags.IntVar(&w.devices, "devices", 10_000, "devices of the second cluster, which have a unit each")
	flags.IntVar(&w.orders, "orders", 200, "orders of each kind and side in each round")
	flags.IntVar(&w.rounds, "rounds", 10, "timed rounds")
	flags.Float64Var(&w.most, "most", 1.2, "how many times as long it may take, by the upper end of the interval")
	return w.run
}

func startsFlags(flags *flag.FlagSet) func(context.Context, io.Writer) error {
	var s startsOptions
	gpuctlFlag(flags, &s.gpuctl)
	flags.IntVar(&s.nodes, "nodes", 1400, "nodes of each cluster, of 8 GPUs each")
	flags.IntVar(&s.devices, "devices", 10_000, "devices of the second cluster, which have a unit each")
	flags.IntVar(&s.orders, "vmis", 60, "VMIs of each kind and side in each round")
	flags.IntVar(&s.rounds, "rounds", 5, "timed rounds")
	flags.Float64Var(&s.most, "most", 1.2, "how many times as long it may take beside many devices, by the upper end of the interval")
	flags.Float64Var(&s.added, "added", 40, "how many ms longer it may take than without devices, by the median")
	return s.run
}

func memoryFlags(flags *flag.FlagSet) func(context.Context, io.Writer) error {
	var m memoryOptions
	gpuctlFlag(flags, &m.gpuctl)
	flags.IntVar(&m.nodes, "nodes", 5000, "nodes, of 8 GPUs each")
	flags.IntVar(&m.devices, "devices", 40_000, "devices, which have a unit each")
	flags.IntVar(&m.pods, "pods", 50_000, "pods, all on nodes")
	flags.IntVar(&m.changes, "changes", 100, "devices, nodes and pods that change while the leader leads")
	flags.DurationVar(&m.rest, "rest", time.Minute, "how long nothing happens in the end")
	flags.Int64Var(&m.limit, "limit", 512, "how many MiB the leader may have had")
	return m.run
}

// gpuctlFlag adds the flag that names the binary to run as the controller.
func gpuctlFlag(flags *flag.FlagSet, path *string) {
	*path, _ = filepath.Abs("bin/gpuctl")
	flags.Func("gpuctl", "the gpuctl binary to run as the controller (default bin/gpuctl)", func(given string) (err error) {
		*path, err = filepath.Abs(given)
		return err
	})
}

// machine says what it is measured on, and how busy that is.
func machine() string {
	return fmt.Sprintf("%s %s/%s, %d processors, load %s", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), load())
}

// load returns the load averages of the last 1, 5 and 15 minutes, where Linux says them.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 3 {
		return "unknown"
	}
	return strings.Join(fields[:3], " ")
}
