// Command up runs a Kubernetes cluster with KubeVirt on this machine until
// Ctrl-C, for people who want to try something on it.
//
//	go run ./test/cluster/up
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	corev1 "k8s.io/api/core/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "up:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, args []string) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer cancel()
	flags := flag.NewFlagSet("up", flag.ContinueOnError)
	build := flags.Bool("build", false, "only build what the cluster consists of")
	operator := flags.Bool("operator", false, "have KubeVirt installed by a real virt-operator")
	var nodes []cluster.Node
	flags.Func("node", "add a node, name[=resource:amount,…]; may be given again (default gpu-node=nvidia.com/GA102GL_A10:2 and plain-node)",
		func(text string) error {
			n, err := parseNode(text)
			nodes = append(nodes, n)
			return err
		})
	var options []cluster.Option
	flags.Func("image", "run pods of an image as processes, repository=program; may be given again", func(text string) error {
		repository, program, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("read image %q: want repository=program", text)
		}
		path, err := filepath.Abs(program)
		options = append(options, cluster.WithImage(repository, path))
		return err
	})
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *build {
		return cluster.Build(ctx, out)
	}
	if nodes == nil {
		nodes = []cluster.Node{
			{Name: "gpu-node", Resources: map[corev1.ResourceName]int64{"nvidia.com/GA102GL_A10": 2}},
			{Name: "plain-node"},
		}
	}
	if *operator {
		options = append(options, cluster.WithOperator())
	}
	return cluster.Up(ctx, out, nodes, options...)
}

// parseNode reads "gpu-node=nvidia.com/GA102GL_A10:2,example.com/nic:1".
func parseNode(text string) (cluster.Node, error) {
	name, list, _ := strings.Cut(text, "=")
	n := cluster.Node{Name: name, Resources: map[corev1.ResourceName]int64{}}
	if list == "" {
		return n, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		resource, amount, found := strings.Cut(item, ":")
		count, err := strconv.ParseInt(amount, 10, 64)
		if !found || err != nil {
			return cluster.Node{}, fmt.Errorf("read resource %q: want resource:amount", item)
		}
		n.Resources[corev1.ResourceName(resource)] = count
	}
	return n, nil
}
