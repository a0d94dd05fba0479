package cli

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
)

// clusterFlags say which cluster a command speaks to, as kubectl's do.
type clusterFlags struct {
	kubeconfig, kubeContext string
}

func (f *clusterFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.kubeconfig, "kubeconfig", "", "`FILE` that says which cluster to speak to (default: as kubectl finds it)")
	flags.StringVar(&f.kubeContext, "context", "", "`NAME` of the kubeconfig's context")
}

func (f *clusterFlags) given() bool { return f.kubeconfig != "" || f.kubeContext != "" }

func (f *clusterFlags) options() cluster.Options {
	return cluster.Options{Kubeconfig: f.kubeconfig, Context: f.kubeContext, UserAgent: "gpuctl/" + currentBuild().Version}
}

// connect makes a client of the cluster that the flags name.
func (f *clusterFlags) connect() (*cluster.Client, error) {
	cluster.Quiet()
	return cluster.Connect(f.options())
}

// scopeFlags say which namespace a command looks at, too.
type scopeFlags struct {
	clusterFlags
	namespace string
}

func (f *scopeFlags) add(cmd *cobra.Command) {
	f.clusterFlags.add(cmd)
	cmd.Flags().StringVarP(&f.namespace, "namespace", "n", "", "`NAMESPACE` of the VM (default: that of the kubeconfig's context)")
}

// namespaceOr returns the namespace that the flags or the kubeconfig name.
func (f *scopeFlags) namespaceOr(other string) string {
	return cmp.Or(f.namespace, cluster.NamespaceOf(f.options()), other)
}

// names lists the objects of a kind for completion: quickly, or not at all.
func (f *scopeFlags) names(ctx context.Context, kind string) ([]string, error) {
	client, err := f.connect()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, completionPatience)
	defer cancel()
	return client.Names(ctx, kind, f.namespaceOr("default"))
}
