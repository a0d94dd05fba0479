package cluster_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/test/cluster"
)

func TestWrites(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.APIOnly(), cluster.WithAudit())
	ns := c.Namespace()
	config := c.User("writer", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"*"}})
	config.UserAgent = "writer/1"
	client := clientOf(t, config, "")
	maps := client.CoreV1().ConfigMaps(ns)
	// The RBAC authorizer learns of a binding a moment after it was made.
	c.Eventually(soon, "the user may read", func(ctx context.Context) error {
		_, err := maps.List(ctx, metav1.ListOptions{})
		return err
	})

	ctx := t.Context()
	named := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }
	create := func(name string, dryRun ...string) error {
		_, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: named(name)}, metav1.CreateOptions{DryRun: dryRun})
		return err
	}
	request := func(verb, resource, name string, code int) cluster.Request {
		return cluster.Request{User: "writer", UserAgent: "writer/1", Verb: verb, Resource: resource, Namespace: ns, Name: name, Code: code}
	}
	with := func(r cluster.Request, change func(*cluster.Request)) cluster.Request {
		change(&r)
		return r
	}
	began := time.Now()
	var want []cluster.Request
	for _, step := range []struct {
		err  error
		want cluster.Request
	}{
		{create("a"), request("create", "configmaps", "a", 201)},
		{create("a"), request("create", "configmaps", "a", 409)},
		{create("dry", metav1.DryRunAll), with(request("create", "configmaps", "dry", 201), func(r *cluster.Request) { r.DryRun = true })},
		{second(maps.Get(ctx, "a", metav1.GetOptions{})), cluster.Request{}},
		{second(maps.Update(ctx, &corev1.ConfigMap{ObjectMeta: named("a")}, metav1.UpdateOptions{})), request("update", "configmaps", "a", 200)},
		{second(maps.Patch(ctx, "a", types.MergePatchType, []byte(`{"data":{"k":"v"}}`), metav1.PatchOptions{})), request("patch", "configmaps", "a", 200)},
		{
			second(client.CoordinationV1().Leases(ns).Update(ctx, &coordinationv1.Lease{ObjectMeta: named("l")}, metav1.UpdateOptions{})),
			with(request("update", "leases", "l", 403), func(r *cluster.Request) { r.Group = "coordination.k8s.io" }),
		},
		{
			second(client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: named("n")}, metav1.CreateOptions{})),
			with(request("create", "nodes", "", 403), func(r *cluster.Request) { r.Namespace = "" }),
		},
		{
			second(client.CoreV1().Pods(ns).Patch(ctx, "p", types.MergePatchType, []byte(`{}`), metav1.PatchOptions{}, "status")),
			with(request("patch", "pods", "p", 403), func(r *cluster.Request) { r.Subresource = "status" }),
		},
		{
			clientOf(t, c.Config(), "other").CoreV1().ConfigMaps(ns).Delete(ctx, "a", metav1.DeleteOptions{}),
			with(request("delete", "configmaps", "a", 403), func(r *cluster.Request) { r.User, r.UserAgent = "other", rest.DefaultKubernetesUserAgent() }),
		},
		{maps.Delete(ctx, "a", metav1.DeleteOptions{}), request("delete", "configmaps", "a", 200)},
		{maps.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}), request("deletecollection", "configmaps", "", 200)},
	} {
		if got := codeOf(step.err); step.want.Code >= 400 && got != step.want.Code || step.want.Code < 400 && got != 0 {
			t.Errorf("%s %s: got %v, want code %d", step.want.Verb, step.want.Resource, step.err, step.want.Code)
		}
		if step.want.Verb != "" {
			want = append(want, step.want)
		}
	}
	got := c.Writes(began, func(user string) bool { return user == "writer" || user == "other" })
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(cluster.Request{}, "Time")); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
	if got := c.Writes(time.Now(), func(user string) bool { return user == "writer" }); len(got) > 0 {
		t.Errorf("got %v from now on, want nothing", got)
	}
}

func TestNodesAreNotAmongTheWrites(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.WithAudit())
	began := time.Now()
	c.AddNode(cluster.Node{Name: "quiet"})
	c.SetAllocatable("quiet", "nvidia.com/QUIET", 1)
	var verbs []string
	for _, w := range c.Writes(began, func(user string) bool { return user == "admin" || user == "heartbeats" }) {
		if w.Name == "quiet" {
			verbs = append(verbs, w.User+" "+w.Verb+" "+w.Resource)
		}
	}
	if diff := cmp.Diff([]string{"admin create nodes"}, verbs); diff != "" {
		t.Errorf("writes differ (-want +got):\n%s", diff)
	}
}

// clientOf returns the client of a configuration, for itself or as somebody else.
func clientOf(t *testing.T, config *rest.Config, as string) kubernetes.Interface {
	t.Helper()
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = as
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func second[T any](_ T, err error) error { return err }

// codeOf returns the code of the API server's answer, or 0 where there was no error.
func codeOf(err error) int {
	if err == nil {
		return 0
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return -1
	}
	return int(status.Status().Code)
}
