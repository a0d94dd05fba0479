package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/rest"
)

// User returns the configuration of a user who is known by a certificate and
// may do what the rules say, in all namespaces, and nothing else.
func (c *Cluster) User(name string, rules ...rbacv1.PolicyRule) *rest.Config {
	c.t.Helper()
	c.grant(rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}, rules)
	config, err := c.stack.credentials.client(c.stack.admin.Host, name)
	if err != nil {
		c.t.Fatal(err)
	}
	return config
}

// ServiceAccount returns a configuration with a token of a ServiceAccount,
// which it creates if need be and which may also do what the rules say, in all
// namespaces.
func (c *Cluster) ServiceAccount(namespace, name string, rules ...rbacv1.PolicyRule) (config *rest.Config) {
	c.t.Helper()
	c.grant(rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: name}, rules)
	c.must("use ServiceAccount "+name, func(ctx context.Context) (err error) {
		if err := c.stack.createAccount(ctx, namespace, name); err != nil {
			return err
		}
		config, err = c.stack.serviceAccountConfig(ctx, namespace, name)
		return err
	})
	return config
}

// Token returns a configuration with a token of an existing ServiceAccount that
// ends, or has ended, at a given time.
func (c *Cluster) Token(namespace, name string, expires time.Time) (config *rest.Config) {
	c.t.Helper()
	c.must("make a token of ServiceAccount "+name, func(ctx context.Context) (err error) {
		config, err = c.stack.tokenConfig(ctx, namespace, name, expires)
		return err
	})
	return config
}

// KubeconfigFor writes a kubeconfig for a configuration of this cluster and
// returns its path.
func (c *Cluster) KubeconfigFor(config *rest.Config) string {
	c.t.Helper()
	path := filepath.Join(c.t.TempDir(), "kubeconfig")
	if err := writeKubeconfig(path, config); err != nil {
		c.t.Fatal(err)
	}
	return path
}

// grant lets a subject do what the rules say until the test ends.
func (c *Cluster) grant(subject rbacv1.Subject, rules []rbacv1.PolicyRule) {
	c.t.Helper()
	var role string
	c.must(fmt.Sprintf("grant %d rules to %s", len(rules), subject.Name), func(ctx context.Context) (err error) {
		role, err = c.stack.grant(ctx, subject, rules)
		return err
	})
	c.t.Cleanup(func() {
		c.must("revoke "+role, func(ctx context.Context) error { return c.stack.revoke(ctx, role) })
	})
}
