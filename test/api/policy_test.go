package api

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/test/cluster"
)

const (
	controller     = "system:serviceaccount:gpuctl-system:gpu-operator-hooks-controller"
	virtController = "system:serviceaccount:kubevirt:kubevirt-controller"
	tenant         = "tenant"
	impostor       = "system:serviceaccount:default:kubevirt-controller"
)

// render renders a chart, and returns its files.
func render(t *testing.T, name, namespace string, values map[string]any) map[string]string {
	t.Helper()
	chart, err := loader.Load("../../charts/" + name)
	if err != nil {
		t.Fatal(err)
	}
	release := chartutil.ReleaseOptions{Name: name, Namespace: namespace, Revision: 1, IsInstall: true}
	all, err := chartutil.ToRenderValues(chart, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		t.Fatal(err)
	}
	files, err := engine.Render(chart, all)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// enforce has the API server hold to what a template of gpuctl's chart says, until the
// test ends.
func enforce(t *testing.T, c *cluster.Cluster, template string) {
	t.Helper()
	files := render(t, charts.GPUOperatorHooks, "gpuctl-system", map[string]any{"gpu": map[string]any{"enabled": true}, "orders": map[string]any{"enabled": true}})
	for document := range strings.SplitSeq(files[charts.GPUOperatorHooks+"/templates/"+template], "\n---") {
		if u := c.Decode(document); u.GetNamespace() == "" {
			create(t, c, document)
		}
	}
}

// store creates an object as create does, as soon as the policies of another test that has
// ended let it.
func store(t *testing.T, c *cluster.Cluster, text string) *unstructured.Unstructured {
	t.Helper()
	u := c.Decode(text)
	c.Eventually(10*time.Second, u.GetName()+" is stored", func(ctx context.Context) error {
		_, err := c.Resource(u).Create(ctx, u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err
	})
	return create(t, c, text)
}

// deed is something that somebody tries, in a dry run: to create an object, or to patch or
// delete one that is stored.
type deed struct {
	by     string
	create string // YAML
	patch  string // of the stored object
	delete bool   // the stored object
	stored string // "Kind name"
	want   string // what the refusal says; empty: it is allowed
}

// tryAll tries what has to be refused until it is, since a policy takes a moment to act,
// and then what has to be allowed. Everybody has all rights but gpuctl's controller
// and the impostor.
func tryAll(t *testing.T, c *cluster.Cluster, stored map[string]*unstructured.Unstructured, deeds map[string]deed) {
	t.Helper()
	for name, d := range deeds {
		if d.want == "" {
			continue
		}
		c.Eventually(10*time.Second, name+" is refused", func(ctx context.Context) error {
			err := d.do(ctx, t, c, stored[d.stored])
			if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), d.want) {
				return fmt.Errorf("the answer is %w, want %q", err, d.want)
			}
			return nil
		})
	}
	for name, d := range deeds {
		if d.want != "" {
			continue
		}
		if err := d.do(t.Context(), t, c, stored[d.stored]); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func (d *deed) do(ctx context.Context, t *testing.T, c *cluster.Cluster, stored *unstructured.Unstructured) error {
	t.Helper()
	config := c.Config()
	config.Impersonate.UserName = d.by
	limited := d.by == controller || d.by == impostor
	if !limited {
		config.Impersonate.Groups = []string{"system:masters"}
	}
	if account, ok := strings.CutPrefix(d.by, "system:serviceaccount:"); ok && !limited {
		namespace, _, _ := strings.Cut(account, ":")
		config.Impersonate.Groups = append(config.Impersonate.Groups, "system:serviceaccounts:"+namespace)
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	u := stored
	if d.create != "" {
		u = c.Decode(d.create)
	}
	resource, _ := meta.UnsafeGuessKindToResource(u.GroupVersionKind())
	objects, dry := client.Resource(resource).Namespace(u.GetNamespace()), []string{metav1.DryRunAll}
	switch {
	case d.create != "":
		_, err = objects.Create(ctx, u, metav1.CreateOptions{DryRun: dry})
	case d.delete:
		err = objects.Delete(ctx, u.GetName(), metav1.DeleteOptions{DryRun: dry})
	default:
		_, err = objects.Patch(ctx, u.GetName(), types.MergePatchType, []byte(d.patch), metav1.PatchOptions{DryRun: dry})
	}
	return err
}
