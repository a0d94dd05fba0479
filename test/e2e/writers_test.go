package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// Two writers add to the same list at once, a hundred times; nothing is lost.
func TestTwoWriters(t *testing.T) {
	const rounds = 100
	c := shared.For(t)
	c.PatchKubeVirt(`{"spec":{"configuration":{"permittedHostDevices":{"pciHostDevices":[]}}}}`)
	var want []string
	for i := range rounds {
		ours, theirs := fmt.Sprintf("example.com/ours-%d", i), fmt.Sprintf("example.com/theirs-%d", i)
		want = append(want, ours, theirs)
		var wg sync.WaitGroup
		wg.Go(func() {
			code, _, stderr := gpuctl(c, "wire", "--no-wake", "--permit", fmt.Sprintf("8086:%04x=%s", i, ours))
			if code != 0 {
				t.Errorf("round %d: exit %d\n%s", i, code, stderr)
			}
		})
		wg.Go(func() {
			if err := appendEntry(c, theirs); err != nil {
				t.Errorf("round %d: %v", i, err)
			}
		})
		wg.Wait()
	}
	got := permitted(kubeVirt(t, c))
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d entries, want %d", len(got), len(want))
	}
}

// appendEntry is the other writer: it reads, appends and updates, as often as it
// conflicts.
func appendEntry(c *cluster.Cluster, name string) error {
	kv := c.Resource(c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: kubevirt, namespace: kubevirt}}"))
	return retry.OnError(retry.DefaultBackoff, func(error) bool { return true }, func() error {
		u, err := kv.Get(context.Background(), "kubevirt", metav1.GetOptions{})
		if err != nil {
			return err
		}
		path := []string{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
		list, _, err := unstructured.NestedSlice(u.Object, path...)
		if err != nil {
			return err
		}
		list = append(list, map[string]any{"pciVendorSelector": "1AF4:1000", "resourceName": name})
		if err := unstructured.SetNestedSlice(u.Object, list, path...); err != nil {
			return err
		}
		_, err = kv.Update(context.Background(), u, metav1.UpdateOptions{})
		return err
	})
}

// What an account may not do is said, and what is there stays.
func TestMissingRights(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	read := []rbacv1.PolicyRule{
		{APIGroups: []string{"kubevirt.io"}, Resources: []string{"*"}, Verbs: []string{"get", "list"}},
		{APIGroups: []string{""}, Resources: []string{"nodes"}, Verbs: []string{"list"}},
	}
	tests := map[string]struct {
		rules []rbacv1.PolicyRule
		want  string
	}{
		"none":         {nil, "is forbidden"},
		"reading only": {read, `cannot update resource "kubevirts"`},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			check := untouched(t, c)
			user := c.User("limited-"+strings.ReplaceAll(name, " ", "-"), tc.rules...)
			code, stdout, stderr := gpuctlAs(c.KubeconfigFor(user), "wire")
			if code != 1 || stdout != "" || !strings.Contains(stderr, tc.want) || !strings.Contains(stderr, "docs/wiring.md") {
				t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
			}
			check()
		})
	}
}

// What an admission plugin refuses is not tried again, and its reason is shown.
func TestRejectedWrite(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	policy := c.Create(c.Decode(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: frozen-kubevirt}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [kubevirt.io], apiVersions: ["*"], resources: [kubevirts], operations: [UPDATE]}]
  validations: [{expression: "!('gpuctl.dev/wired' in object.metadata.?annotations.orValue({}))", message: the KubeVirt CR is frozen}]
`))
	binding := c.Create(c.Decode(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: frozen-kubevirt}
spec: {policyName: frozen-kubevirt, validationActions: [Deny]}
`))
	defer deleteAnyway(t, c, policy)
	defer deleteAnyway(t, c, binding)
	kv := kubeVirt(t, c)
	kv.SetAnnotations(map[string]string{"gpuctl.dev/wired": "probe"})
	c.Eventually(soon, "the policy is in force", func(ctx context.Context) error {
		_, err := c.Resource(kv).Update(ctx, kv, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil {
			return errorf("a dry run is let through")
		}
		return nil
	})
	check := untouched(t, c)
	began := time.Now()
	code, stdout, stderr := gpuctl(c, "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "the KubeVirt CR is frozen") || time.Since(began) > 10*time.Second {
		t.Errorf("exit %d after %s, stdout %q\n%s", code, time.Since(began), stdout, stderr)
	}
	check()
}

func TestExpiredToken(t *testing.T) {
	c := shared.For(t)
	c.ServiceAccount("default", "expired")
	check := untouched(t, c)
	token := c.Token("default", "expired", time.Now().Add(-time.Hour))
	code, stdout, stderr := gpuctlAs(c.KubeconfigFor(token), "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "expired: log in again") {
		t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
	}
	check()
}

// There must be exactly one KubeVirt CR.
func TestWhichKubeVirt(t *testing.T) {
	t.Parallel()
	c := cluster.Start(t, cluster.APIOnly())
	second := c.Decode("{apiVersion: kubevirt.io/v1, kind: KubeVirt, metadata: {name: second, namespace: default}, spec: {}}")
	created := c.Create(second)
	check := untouched(t, c)
	if _, stderr := succeed(t, c, "wire", "--dry-run"); !strings.Contains(stderr, "KubeVirt kubevirt/kubevirt: 1 to change") ||
		!strings.Contains(stderr, "passed over: KubeVirt default/second (it is not deployed)") {
		t.Errorf("the one that is not deployed:\n%s", stderr)
	}
	created.Object["status"] = map[string]any{"phase": "Deployed"}
	if _, err := c.Resource(created).UpdateStatus(t.Context(), created, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr := gpuctl(c, "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "want exactly one, got KubeVirt default/second") {
		t.Errorf("two: exit %d, stdout %q\n%s", code, stdout, stderr)
	}
	check()
	for _, u := range []*unstructured.Unstructured{created, kubeVirt(t, c)} {
		deleteAnyway(t, c, u)
		c.Eventually(soon, u.GetName()+" is gone", func(ctx context.Context) error {
			got, err := c.Resource(u).Get(ctx, u.GetName(), metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return nil
			}
			got.SetFinalizers(nil)
			_, err = c.Resource(u).Update(ctx, got, metav1.UpdateOptions{})
			return errorf("still there, %v", err)
		})
	}
	code, stdout, stderr = gpuctl(c, "wire")
	if code != 1 || stdout != "" || !strings.Contains(stderr, "no KubeVirt CR") {
		t.Errorf("none: exit %d, stdout %q\n%s", code, stdout, stderr)
	}
	if code, _, stderr := gpuctl(c, "wire", "--wait", "1s"); code != 124 || !strings.Contains(stderr, "no KubeVirt CR") {
		t.Errorf("none, waiting: exit %d\n%s", code, stderr)
	}
	if _, stderr := succeed(t, c, "wire", "--wait", "1s", "--strict=false"); !strings.Contains(stderr, "GPU0101") {
		t.Errorf("none, waiting, not strict:\n%s", stderr)
	}
	if _, stderr := succeed(t, c, "wire", "--remove"); !strings.Contains(stderr, "nothing to remove") {
		t.Errorf("removing without a CR:\n%s", stderr)
	}
}

// An API server that drops connections is tried again for a while. One that
// always does is a clear error.
func TestDroppedConnections(t *testing.T) {
	c := shared.For(t)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	t.Run("always", func(t *testing.T) {
		check := untouched(t, c)
		proxy := dropping(t, c, true)
		code, stdout, stderr := gpuctlAs(c.KubeconfigFor(proxy.config), "wire")
		if code != 1 || stdout != "" || !strings.Contains(stderr, "is the API server at") {
			t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
		}
		check()
	})
	t.Run("while writing", func(t *testing.T) {
		proxy := dropping(t, c, false)
		done := make(chan struct{})
		go func() { // cut every connection again and again, for a while
			defer close(done)
			for range 10 {
				time.Sleep(100 * time.Millisecond)
				proxy.cut()
			}
		}()
		// Reading the cluster is not tried again, so gpuctl may fail; it must not
		// leave half a plan.
		code, _, stderr := gpuctlAs(c.KubeconfigFor(proxy.config), "wire")
		<-done
		kv := kubeVirt(t, c)
		_, recorded := kv.GetAnnotations()["gpuctl.dev/wired"]
		if wired := slices.Equal(permitted(kv), []string{h200}); wired != recorded || code == 0 && !wired {
			t.Errorf("exit %d, wired %v, recorded %v\n%s", code, wired, recorded, stderr)
		}
		succeed(t, c, "wire")
		if got := permitted(kubeVirt(t, c)); !slices.Equal(got, []string{h200}) {
			t.Errorf("permitted %v", got)
		}
	})
}

// proxy forwards to the API server, byte for byte, unless told to drop.
type proxy struct {
	config  *rest.Config
	blocked atomic.Bool // every connection is dropped
	mu      sync.Mutex
	open    []net.Conn
}

// block takes the way to the API server away, or gives it back.
func (p *proxy) block(blocked bool) {
	p.blocked.Store(blocked)
	p.cut()
}

// dropping starts a proxy; with always it drops every connection at once.
func dropping(t *testing.T, c *cluster.Cluster, always bool) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{config: c.Config()}
	p.blocked.Store(always)
	server := strings.TrimPrefix(p.config.Host, "https://")
	p.config.Host = "https://" + listener.Addr().String()
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			if p.blocked.Load() {
				_ = conn.Close()
				continue
			}
			wg.Go(func() { p.forward(conn, server) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		p.cut()
		wg.Wait()
	})
	return p
}

func (p *proxy) forward(client net.Conn, server string) {
	upstream, err := net.Dial("tcp", server)
	if err != nil {
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open = append(p.open, client, upstream)
	p.mu.Unlock()
	var wg sync.WaitGroup
	for _, pair := range [][2]net.Conn{{client, upstream}, {upstream, client}} {
		wg.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_ = pair[0].Close()
		})
	}
	wg.Wait()
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, conn := range p.open {
		_ = conn.Close()
	}
	p.open = nil
}
