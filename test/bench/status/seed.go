package main

import (
	"context"
	"embed"
	"strings"
	"text/template"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

//go:embed objects
var objects embed.FS

// size says how large the cluster is.
type size struct{ nodes, gpus, vms, pods int }

// seeder makes the objects of a cluster.
type seeder struct {
	size
	fleet     *fleet.Fleet
	client    dynamic.Interface
	templates *template.Template
	now       string
}

// seed fills a cluster whose nodes all serve their GPUs: the first half of the VMs
// runs, until the nodes are full, and the others wait for a place.
func seed(ctx context.Context, kubeconfig string, of size) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	templates, err := template.ParseFS(objects, "objects/*")
	if err != nil {
		return err
	}
	nodes, err := fleet.New(client, of.gpus)
	if err != nil {
		return err
	}
	s := &seeder{size: of, fleet: nodes, client: client, templates: templates, now: fleet.Now()}
	if err := s.fleet.Base(ctx, namespaces()...); err != nil {
		return err
	}
	agents := &set{Name: "gpuctl-agent", Image: "ghcr.io/gpuctl/gpuctl:v0.4.0", Labels: fleet.AgentLabels}
	plugin := &set{Name: "nvidia-sandbox-device-plugin", Image: "nvcr.io/nvidia/kubevirt-gpu-device-plugin:" + gpu.Newest().String(), Labels: "{app: nvidia-sandbox-device-plugin}"}
	for _, d := range []*set{agents, plugin} {
		if d.UID, err = s.create(ctx, "daemonset", d); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		n   int
		one func(context.Context, int) error
	}{
		{s.nodes, func(ctx context.Context, i int) error { return s.node(ctx, i, agents, plugin) }},
		{s.vms, s.vm},
		{s.pods, s.plainPod},
	} {
		if err := fleet.InParallel(ctx, step.n, step.one); err != nil {
			return err
		}
	}
	return nil
}

// create makes an object of a template, and its status.
func (s *seeder) create(ctx context.Context, kind string, values any) (uid string, err error) {
	var text strings.Builder
	if err := s.templates.ExecuteTemplate(&text, kind+".yaml", values); err != nil {
		return "", err
	}
	return fleet.Write(ctx, s.client, text.String())
}
