package main

import (
	"context"
	"embed"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

//go:embed objects
var objects embed.FS

// size says how large the cluster is.
type size struct{ nodes, gpus, vms, pods int }

// writers is how many requests write at the same time.
const writers = 12

// seeder makes the objects of a cluster.
type seeder struct {
	size
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
	s := &seeder{size: of, client: client, templates: templates, now: time.Now().UTC().Format("2006-01-02T15:04:05.000000Z")}
	if err := s.base(ctx); err != nil {
		return err
	}
	agents := &set{Name: "gpuctl-agent", Image: "ghcr.io/gpuctl/gpuctl:v0.4.0", Labels: agentLabels}
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
		if err := inParallel(ctx, step.n, step.one); err != nil {
			return err
		}
	}
	return nil
}

const agentLabels = "{" + v1alpha1.LabelPartOf + ": " + v1alpha1.PartOf + ", " + v1alpha1.LabelComponent + ": " + v1alpha1.ComponentAgent + "}"

// inParallel calls f for 0 to n-1 and returns the first error.
func inParallel(ctx context.Context, n int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	done := make(chan struct{})
	for range writers {
		go func() {
			defer func() { done <- struct{}{} }()
			for i := range next {
				if ctx.Err() != nil {
					continue
				}
				if err := f(ctx, i); err != nil {
					cancel(err)
				}
			}
		}()
	}
	for i := range n {
		next <- i
	}
	close(next)
	for range writers {
		<-done
	}
	return context.Cause(ctx)
}

// base makes what the others need: gpuctl's CRDs, namespaces, and the table.
func (s *seeder) base(ctx context.Context) error {
	for _, kind := range []string{"gpunodes", "gpuwirings"} {
		crd, err := os.ReadFile("charts/gpu-operator-hooks/files/crds/gpuctl.dev_" + kind + ".yaml")
		if err != nil {
			return err
		}
		if _, err := s.write(ctx, string(crd)); err != nil {
			return err
		}
	}
	for _, name := range append(namespaces(), "gpu-system") {
		if _, err := s.write(ctx, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+name+"}"); err != nil {
			return err
		}
		if _, err := s.write(ctx, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: default, namespace: "+name+"}"); err != nil {
			return err
		}
	}
	var entries []string
	for _, d := range cards() {
		entries = append(entries, fmt.Sprintf(`{"pciVendorSelector":%q,"resourceName":%q,"externalResourceProvider":true}`, gpu.NVIDIA(d).Selector(), gpu.Newest().Name(d)))
	}
	patch := `{"spec":{"configuration":{"developerConfiguration":{"featureGates":["HostDevices"]},"permittedHostDevices":{"pciHostDevices":[` + strings.Join(entries, ",") + `]}}}}`
	gvr, _ := meta.UnsafeGuessKindToResource(kubeVirt)
	_, err := s.client.Resource(gvr).Namespace("kubevirt").Patch(ctx, "kubevirt", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

// create makes an object of a template, and its status.
func (s *seeder) create(ctx context.Context, kind string, values any) (uid string, err error) {
	var text strings.Builder
	if err := s.templates.ExecuteTemplate(&text, kind+".yaml", values); err != nil {
		return "", err
	}
	return s.write(ctx, text.String())
}

func (s *seeder) write(ctx context.Context, text string) (uid string, err error) {
	u := &unstructured.Unstructured{}
	if err := yaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096).Decode(u); err != nil {
		return "", fmt.Errorf("read %s: %w", text, err)
	}
	gvr, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	client := dynamic.ResourceInterface(s.client.Resource(gvr))
	if u.GetNamespace() != "" {
		client = s.client.Resource(gvr).Namespace(u.GetNamespace())
	}
	made, err := client.Create(ctx, u, metav1.CreateOptions{})
	for deadline := time.Now().Add(20 * time.Second); isStarting(err) && time.Now().Before(deadline); {
		time.Sleep(200 * time.Millisecond)
		made, err = client.Create(ctx, u, metav1.CreateOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("create %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	status, _ := u.Object["status"].(map[string]any)
	if kind := u.GetKind(); status == nil || kind != "Pod" && kind != "VirtualMachine" {
		return string(made.GetUID()), nil
	}
	if given, ok := made.Object["status"].(map[string]any); ok {
		status["qosClass"] = given["qosClass"] // which nobody may change
	}
	made.Object["status"] = status
	if _, err := client.UpdateStatus(ctx, made, metav1.UpdateOptions{}); err != nil {
		return "", fmt.Errorf("update the status of %s %s: %w", u.GetKind(), u.GetName(), err)
	}
	return string(made.GetUID()), nil
}
