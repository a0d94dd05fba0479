package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

// Running is a cluster in the hands of a command, which is no test.
type Running struct {
	Config     *rest.Config // an administrator's, without client-side throttling
	Nodes      *rest.Config // of the user who plays nodes and is not in the audit log
	Kubeconfig string       // the administrator's, as a file
	Kubectl    string

	stack *stack
}

// Use starts a cluster, hands it over, and stops it when use returns.
func Use(ctx context.Context, progress io.Writer, use func(context.Context, Running) error, opts ...Option) error {
	s, err := launch(ctx, apply(opts), progress)
	if err != nil {
		return err
	}
	defer s.stopOnSignal()()
	nodes, err := s.nodesConfig()
	if err == nil {
		err = use(ctx, Running{
			Config: rest.CopyConfig(s.admin), Nodes: nodes, Kubeconfig: s.kubeconfig(), Kubectl: s.built.files["kubectl"], stack: s,
		})
	}
	if err != nil {
		err = fmt.Errorf("%w\nall logs are in %s", err, s.dir.logs())
	}
	return errors.Join(err, s.close(err != nil))
}

// ServiceAccount returns the path of a kubeconfig of a ServiceAccount, which it
// creates if need be and which may do what the rules say, in all namespaces, and
// the name by which the API server knows it.
func (r Running) ServiceAccount(ctx context.Context, namespace, name string, rules ...rbacv1.PolicyRule) (kubeconfig, user string, err error) {
	if err := r.stack.createAccount(ctx, namespace, name); err != nil {
		return "", "", err
	}
	if _, err := r.stack.grant(ctx, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, rules); err != nil {
		return "", "", err
	}
	config, err := r.stack.serviceAccountConfig(ctx, namespace, name)
	if err != nil {
		return "", "", err
	}
	path := r.stack.dir.file(namespace + "." + name + ".kubeconfig")
	return path, userOf(namespace, name), writeKubeconfig(path, config)
}

// Start starts a process in a process group of its own, which on Linux ends when
// this process does, whatever the reason.
func (r Running) Start(cmd *exec.Cmd) error { return r.stack.launcher.start(cmd) }

// Log returns the path of a log, which is kept as those of the components are.
func (r Running) Log(name string) string { return r.stack.dir.log(name) }

// Requests returns all requests of some users that came at a time or later, as
// Cluster.Writes does: with WithReads also reads. A watch is there when it has ended.
func (r Running) Requests(since time.Time, by func(user string) bool) ([]Request, error) {
	return r.stack.requests(since, func(r Request) bool { return by(r.User) })
}

// Expose makes a Service, "namespace/name", reach an address, as Cluster.Expose does.
func (r Running) Expose(service, addr string) { r.stack.egress.expose(service, addr) }

// Port returns a free port of 127.0.0.1, which nobody else gets. There are some for
// each cluster.
func (r Running) Port() int { return r.stack.ports.take() }
