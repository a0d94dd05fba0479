package cluster_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

func TestCredentials(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	listNodes := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}}
	for name, tc := range map[string]struct {
		config    *rest.Config
		nodes     func(error) bool
		namespace func(error) bool
	}{
		"administrator":                 {c.Config(), succeeded, succeeded},
		"user without rules":            {c.User("nobody"), apierrors.IsForbidden, apierrors.IsForbidden},
		"user who may list nodes":       {c.User("lister", listNodes), succeeded, apierrors.IsForbidden},
		"account without rules":         {c.ServiceAccount(ns, "none"), apierrors.IsForbidden, apierrors.IsForbidden},
		"account that may list nodes":   {c.ServiceAccount(ns, "some", listNodes), succeeded, apierrors.IsForbidden},
		"token that ends in an hour":    {c.Token(ns, "some", time.Now().Add(time.Hour)), succeeded, apierrors.IsForbidden},
		"token that ended a minute ago": {c.Token(ns, "some", time.Now().Add(-time.Minute)), apierrors.IsUnauthorized, apierrors.IsUnauthorized},
		"kubeconfig of a user":          {load(t, c.KubeconfigFor(c.User("reader", listNodes))), succeeded, apierrors.IsForbidden},
		"kubeconfig of a token":         {load(t, c.KubeconfigFor(c.Token(ns, "some", time.Now().Add(-time.Minute)))), apierrors.IsUnauthorized, apierrors.IsUnauthorized},
		"administrator's kubeconfig":    {load(t, c.Kubeconfig()), succeeded, succeeded},
	} {
		t.Run(name, func(t *testing.T) {
			client, err := kubernetes.NewForConfig(tc.config)
			if err != nil {
				t.Fatal(err)
			}
			// The RBAC authorizer learns of a binding a moment after it was made.
			shared.For(t).Eventually(soon, "nodes are listed as they should", func(ctx context.Context) error {
				_, err := client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
				return unless(tc.nodes(err), "list nodes", err)
			})
			_, err = client.CoreV1().Namespaces().Get(t.Context(), ns, metav1.GetOptions{})
			if err := unless(tc.namespace(err), "get a namespace", err); err != nil {
				t.Error(err)
			}
		})
	}
}

func succeeded(err error) bool { return err == nil }

func unless(ok bool, what string, err error) error {
	if ok {
		return nil
	}
	return fmt.Errorf("%s: unexpected result: %q", what, fmt.Sprint(err))
}

func load(t *testing.T, kubeconfig string) *rest.Config {
	t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return config
}
