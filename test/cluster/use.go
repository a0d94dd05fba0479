package cluster

import (
	"context"
	"errors"
	"io"

	"k8s.io/client-go/rest"
)

// Running is a cluster in the hands of a command, which is no test.
type Running struct {
	Config     *rest.Config // an administrator's, without client-side throttling
	Kubeconfig string       // the same, as a file
	Kubectl    string
}

// Use starts a cluster, hands it over, and stops it when use returns.
func Use(ctx context.Context, progress io.Writer, use func(context.Context, Running) error, opts ...Option) error {
	s, err := launch(ctx, apply(opts), progress)
	if err != nil {
		return err
	}
	defer s.stopOnSignal()()
	err = use(ctx, Running{Config: rest.CopyConfig(s.admin), Kubeconfig: s.kubeconfig(), Kubectl: s.built.files["kubectl"]})
	return errors.Join(err, s.close(err != nil))
}
