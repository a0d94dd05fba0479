package api

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/internal/cli"
	reading "github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// shown is what a command printed.
type shown struct {
	Code           int
	Stdout, Stderr string
}

func gpuctl(c *cluster.Cluster, args ...string) shown {
	var out, err bytes.Buffer
	code := cli.Main("gpuctl", append(args, "--kubeconfig", c.Kubeconfig()), strings.NewReader(""), &out, &err)
	return shown{code, out.String(), err.String()}
}

// kubectl returns what kubectl prints to stdout.
func kubectl(t *testing.T, c *cluster.Cluster, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), c.Binary("kubectl"), append(args, "--kubeconfig", c.Kubeconfig())...)
	var failed bytes.Buffer
	cmd.Stderr = &failed
	out, err := cmd.Output()
	if err != nil && !strings.Contains(failed.String(), "NotFound") {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(args, " "), err, failed.String())
	}
	return string(out)
}

// scene makes classes and devices in two namespaces, in states that a table shows.
func scene(t *testing.T, c *cluster.Cluster) (namespace, other string) {
	t.Helper()
	namespace, other = c.Namespace(), c.Namespace()
	device := func(ns, name, labels, class string, count int) {
		create(t, c, fmt.Sprintf("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: %s, namespace: %s, labels: {%s}}, spec: {className: %s, count: %d}}", name, ns, labels, class, count))
	}
	h200 := create(t, c, "{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: h200}, spec: {resourceName: nvidia.com/GH100_H200_SXM_141GB, entitlement: large}}")
	create(t, c, "{apiVersion: gpuctl.dev/v1alpha1, kind: GPUClass, metadata: {name: a10}, spec: {resourceName: nvidia.com/GA102GL_A10, maxCount: 2}}")
	_, err := patch(t, c, h200, `{"status":{"units":{"total":16,"free":8,"held":4,"attached":4,"lost":0},"conditions":[{"type":"Available","status":"True","reason":"Free","message":"8 of 16 are free","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	device(namespace, "train-a", "team: vision", "h200", 4)
	device(namespace, "notebook-of-somebody-with-a-long-name", "team: speech", "a10", 1)
	device(other, "render", "team: vision", "a10", 2)
	held := c.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: train-a, namespace: " + namespace + "}}")
	_, err = patch(t, c, held, `{"status":{"state":"Held","origin":{"kind":"Order"},"placement":{"node":"worker-7","resourceName":"nvidia.com/GH100_H200_SXM_141GB","units":4,"since":"2026-01-01T00:00:00.000000Z"},
		"conditions":[{"type":"Held","status":"True","reason":"Reserved","message":"4 units on worker-7","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`, "status")
	if err != nil {
		t.Fatal(err)
	}
	return namespace, other
}

// ages are what differs between two moments.
var ages = regexp.MustCompile(`(?m)\b\d+s$`)

// The tables are those of kubectl get, byte for byte.
func TestTables(t *testing.T) {
	c := served(t)
	ns, other := scene(t, c)
	for name, tc := range map[string]struct{ args, missing string }{
		"classes":                        {args: "classes"},
		"classes, wide":                  {args: "classes -o wide"},
		"a class":                        {args: "classes h200"},
		"a class as YAML":                {args: "classes h200 -o yaml"},
		"names of classes":               {args: "classes -o name"},
		"devices":                        {args: "devices -n " + ns},
		"devices, wide":                  {args: "devices -n " + ns + " -o wide"},
		"of all namespaces":              {args: "devices -A"},
		"of all namespaces, wide":        {args: "devices -A -o wide"},
		"with a label":                   {args: "devices -A -l team=vision"},
		"as JSON":                        {args: "devices -n " + ns + " -o json"},
		"as YAML":                        {args: "devices -A -o yaml"},
		"none, as JSON":                  {args: "devices -A -l team=none -o json"},
		"names":                          {args: "devices -A -o name"},
		"a device":                       {args: "devices -n " + ns + " train-a"},
		"a device as JSON":               {args: "devices -n " + ns + " train-a -o json"},
		"two devices":                    {args: "devices -n " + ns + " train-a notebook-of-somebody-with-a-long-name"},
		"two devices as JSON":            {args: "devices -n " + ns + " train-a notebook-of-somebody-with-a-long-name -o json"},
		"a device, and one of elsewhere": {args: "devices -n " + ns + " render train-a", missing: `gpudevices.gpuctl.dev "render" not found`},
		"a device of elsewhere":          {args: "devices -n " + ns + " render", missing: `gpudevices.gpuctl.dev "render" not found`},
		"no such class":                  {args: "classes h100", missing: `gpuclasses.gpuctl.dev "h100" not found`},
	} {
		t.Run(name, func(t *testing.T) {
			got := gpuctl(c, strings.Fields(tc.args)...)
			want := kubectl(t, c, append([]string{"get"}, strings.Fields("gpu"+tc.args)...)...)
			if diff := cmp.Diff(ages.ReplaceAllString(want, "0s"), ages.ReplaceAllString(got.Stdout, "0s")); diff != "" {
				t.Errorf("table (-kubectl +gpuctl):\n%s", diff)
			}
			if !strings.Contains(got.Stderr, tc.missing) || (got.Code == 0) != (tc.missing == "") {
				t.Errorf("exit %d, stderr %s", got.Code, got.Stderr)
			}
			t.Logf("\n%s", got.Stdout)
		})
	}
	t.Run("none", func(t *testing.T) {
		empty := c.Namespace()
		want := shown{Stderr: "there are no devices in namespace " + empty + "\n"}
		if diff := cmp.Diff(want, gpuctl(c, "devices", "-n", empty)); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
		want = shown{Stderr: "there are no devices in namespace " + other + " with labels team=speech\n"}
		if diff := cmp.Diff(want, gpuctl(c, "devices", "-n", other, "-l", "team=speech")); diff != "" {
			t.Errorf("shown (-want +got):\n%s", diff)
		}
	})
}

// A watch from a version that the API server has forgotten lists anew, and goes on.
func TestTableWatchExpires(t *testing.T) {
	c := served(t)
	ns := c.Namespace()
	order := func(name string) {
		create(t, c, "{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: "+name+", namespace: "+ns+"}, spec: {className: h200}}")
	}
	order("before")
	u := c.Decode("{apiVersion: gpuctl.dev/v1alpha1, kind: GPUDevice, metadata: {name: before, namespace: " + ns + "}}")
	w, err := c.Resource(u).Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
	if err != nil {
		t.Fatal(err)
	}
	first := <-w.ResultChan()
	w.Stop()
	if !apierrors.IsResourceExpired(apierrors.FromObject(first.Object)) {
		t.Fatalf("version 1 is not forgotten: %v", first)
	}
	client, err := reading.Connect(reading.Options{Kubeconfig: c.Kubeconfig()})
	if err != nil {
		t.Fatal(err)
	}
	tables, err := client.Tables(reading.Query{Resource: "gpudevices", Namespace: ns})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	var got []any
	changed := func(table *metav1.Table) error {
		got = append(got, table.Rows[0].Cells[0])
		switch len(got) {
		case 1:
			order("after")
		case 2:
			stop()
		}
		return nil
	}
	err = tables.Watch(ctx, &metav1.Table{ListMeta: metav1.ListMeta{ResourceVersion: "1"}}, changed, func(err error) { t.Error(err) })
	if diff := cmp.Diff([]any{"before", "after"}, got); diff != "" || err != nil {
		t.Errorf("%v; rows (-want +got):\n%s", err, diff)
	}
}
