// Package kinds installs gpuctl's kinds in a cluster for tests.
package kinds

import (
	"context"
	"errors"
	"io/fs"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/internal/cluster"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// soon is within which time an API server serves a kind.
const soon = 30 * time.Second

// Install installs devices and classes, and returns an administrator's client once both
// are served.
func Install(t testing.TB, c *testcluster.Cluster) (admin client.WithWatch) {
	t.Helper()
	for _, kind := range []string{"gpudevices", "gpuclasses"} {
		text, err := fs.ReadFile(charts.FS, charts.GPUOperatorHooks+"/files/crds/gpuctl.dev_"+kind+".yaml")
		if err != nil {
			t.Fatal(err)
		}
		c.Create(c.Decode(string(text)))
	}
	c.Eventually(soon, "its kinds are served", func(ctx context.Context) (err error) {
		if admin, err = client.NewWithWatch(c.Config(), client.Options{Scheme: cluster.CacheOptions().Scheme}); err != nil {
			return err
		}
		return errors.Join(admin.List(ctx, &v1alpha1.GPUDeviceList{}), admin.List(ctx, &v1alpha1.GPUClassList{}))
	})
	return admin
}
