package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// shared has the CRDs of the chart's files, also those that the chart does not
// install yet.
var (
	shared  = cluster.NewShared(cluster.APIOnly())
	install sync.Once
	warned  warnings
)

func TestMain(m *testing.M) { os.Exit(shared.Main(m)) }

var definitions = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// warnings are what the API server remarked on the CRDs.
type warnings struct {
	sync.Mutex
	texts []string
}

func (w *warnings) HandleWarningHeader(_ int, _, text string) {
	w.Lock()
	defer w.Unlock()
	w.texts = append(w.texts, text)
}

// served returns the cluster, which serves all kinds.
func served(t *testing.T) *cluster.Cluster {
	t.Helper()
	c := shared.For(t)
	install.Do(func() {
		config := c.Config()
		config.WarningHandler = &warned
		client, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for name, text := range crds(t) {
			if _, err := client.Resource(definitions).Create(t.Context(), c.Decode(text), metav1.CreateOptions{}); err != nil {
				t.Fatalf("create %s: %v", name, err)
			}
		}
		for name := range crds(t) {
			c.Eventually(30*time.Second, name+" is served", func(ctx context.Context) error { return published(ctx, c, name) })
		}
	})
	return c
}

// published reports a kind that the API server does not serve, or whose schema it has
// not published yet: that comes last.
func published(ctx context.Context, c *cluster.Cluster, crd string) error {
	plural, group, _ := strings.Cut(crd, ".")
	text, err := c.Clientset().Discovery().RESTClient().Get().AbsPath("/openapi/v3/apis/" + group + "/v1alpha1").DoRaw(ctx)
	if err == nil && !strings.Contains(string(text), "/"+plural+`"`) {
		err = fmt.Errorf("%s is not in the API server's schema", plural)
	}
	return err
}

// crds returns the CRDs by their names.
func crds(t *testing.T) map[string]string {
	t.Helper()
	folder := charts.GPUOperatorHooks + "/files/crds"
	entries, err := charts.FS.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d CRDs: %v", len(entries), err)
	}
	out := map[string]string{}
	for _, e := range entries {
		text, err := fs.ReadFile(charts.FS, folder+"/"+e.Name())
		if err != nil {
			t.Fatal(err)
		}
		group, plural, _ := strings.Cut(strings.TrimSuffix(e.Name(), ".yaml"), "_")
		out[plural+"."+group] = string(text)
	}
	return out
}

// The API server estimates what each rule may cost, and refuses or remarks.
func TestNoWarnings(t *testing.T) {
	served(t)
	warned.Lock()
	defer warned.Unlock()
	if len(warned.texts) > 0 {
		t.Errorf("the API server warns:\n%s", strings.Join(warned.texts, "\n"))
	}
}

// attempt is one object that is created, and what becomes of it.
type attempt struct {
	object string   // YAML
	spec   string   // JSON of what is stored; empty: refused
	errors []string // parts of the refusal: the field, and what to do
}

// run creates the object without storing it.
func (a attempt) run(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	u := c.Decode(a.object)
	got, err := c.Resource(u).Create(t.Context(), u, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
	if a.spec == "" {
		refused(t, err, a.errors...)
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	same(t, got, "spec", a.spec)
}

// refused fails the test unless err is the API server's that an object is invalid,
// in words that have all the parts.
func refused(t *testing.T, err error, parts ...string) {
	t.Helper()
	if !apierrors.IsInvalid(err) {
		t.Fatalf("not refused as invalid: %v", err)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in the refusal:\n%v", part, err)
		}
	}
	if len(parts) == 0 {
		t.Errorf("the case does not say what is wrong: %v", err)
	}
}

// same compares a field of an object with JSON.
func same(t *testing.T, u *unstructured.Unstructured, field, want string) {
	t.Helper()
	var w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(u.Object[field])
	if err != nil {
		t.Fatal(err)
	}
	var got any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(w, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", field, diff)
	}
}

// patch merges JSON into an object, or into one of its subresources.
func patch(t *testing.T, c *cluster.Cluster, u *unstructured.Unstructured, text string, subresources ...string) (*unstructured.Unstructured, error) {
	t.Helper()
	return c.Resource(u).Patch(t.Context(), u.GetName(), "application/merge-patch+json", []byte(text), metav1.PatchOptions{FieldValidation: "Strict"}, subresources...)
}

// create stores an object, and deletes it when the test ends.
func create(t *testing.T, c *cluster.Cluster, text string) *unstructured.Unstructured {
	t.Helper()
	u := c.Create(c.Decode(text))
	t.Cleanup(func() {
		err := c.Resource(u).Delete(context.Background(), u.GetName(), metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(errors.Join(fmt.Errorf("delete %s", u.GetName()), err))
		}
	})
	return u
}

// change is one patch of an object that is stored.
type change struct {
	patch   string
	refused []string // parts of the refusal; empty: it is stored
}

// changes tries each on the stored object, without storing it.
func changes(t *testing.T, c *cluster.Cluster, u *unstructured.Unstructured, cases map[string]change, subresources ...string) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := c.Resource(u).Patch(t.Context(), u.GetName(), "application/merge-patch+json", []byte(tc.patch),
				metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"}, subresources...)
			if len(tc.refused) > 0 {
				refused(t, err, tc.refused...)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
}
