package e2e

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// reads is the right to list resources of a group.
func reads(group string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: []string{"list"}}
}

// tenant returns a user who may do what the rules say in one namespace only.
func tenant(t *testing.T, c *cluster.Cluster, namespace, name string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	user := c.User(name)
	roles, bindings := c.Clientset().RbacV1().Roles(namespace), c.Clientset().RbacV1().RoleBindings(namespace)
	if _, err := roles.Create(t.Context(), &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	_, err := bindings.Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return user
}

// What an account may not read is named, and what it may read is used. Everybody may
// read the KubeVirt CR: KubeVirt sees to that.
func TestDiagnoseAccess(t *testing.T) {
	c := shared.For(t)
	noMachines(c)
	unwired(c)
	c.AddNode(gpuNode("worker-1", h200, 8))
	w := &ward{Cluster: c, t: t, ns: c.Namespace()}
	vm := refusedByTable(w)
	nodes, machines := reads("", "nodes"), reads("kubevirt.io", "virtualmachines", "virtualmachineinstances")
	tests := map[string]struct {
		user   *rest.Config
		args   []string
		exit   int
		first  diagnose.Code
		denied []string // what GPU0130 has to say
		silent []string // what it must not say
	}{
		"nothing": {
			c.User("nobody"), nil, 0, "GPU0130",
			[]string{"list nodes in the cluster", "list virtualmachines.kubevirt.io in the cluster", "list pods in the cluster", "list deployments.apps in the cluster"},
			nil,
		},
		"nodes": {
			c.User("operator", nodes), nil, 3, "GPU0302",
			[]string{"list daemonsets.apps in the cluster", "list virtualmachines.kubevirt.io in the cluster"},
			[]string{"list nodes"},
		},
		"a node": {
			c.User("operator-of-one", nodes), []string{"node/worker-1"}, 3, "GPU0302", []string{"list daemonsets.apps in the cluster"}, []string{"list nodes"},
		},
		"one namespace's VMs": {
			tenant(t, c, w.ns, "tenant", machines), vm, 3, "GPU0302",
			[]string{"list nodes in the cluster", "list virtualmachines.kubevirt.io outside of the namespace"},
			[]string{"list virtualmachines.kubevirt.io in the cluster"},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gpuctlAs(c.KubeconfigFor(tc.user), append([]string{"diagnose", "-o", "json"}, tc.args...)...)
			found := findingsOf(t, stdout)
			said := ""
			for _, f := range found {
				t.Logf("%s %s %s: %s\n    %s", f.Code, f.Severity, f.Object, f.Message, f.Hint)
				if f.Code == "GPU0130" {
					said += f.Message + "\n"
				}
			}
			if len(found) == 0 || code != tc.exit || found[0].Code != tc.first || stderr != "" {
				t.Errorf("exit %d with %d findings\n%s", code, len(found), stderr)
			}
			for _, words := range tc.denied {
				if !strings.Contains(said, words) {
					t.Errorf("it is not said that it may not %s", words)
				}
			}
			for _, words := range tc.silent {
				if strings.Contains(said, words) {
					t.Errorf("it is said that it may not %s", words)
				}
			}
		})
	}
}

// What an account may not look for is not said to be missing.
func TestDiagnoseUnseen(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	user := c.KubeconfigFor(tenant(t, c, ns, "blind", reads("kubevirt.io", "virtualmachineinstances")))
	tests := map[string]struct{ args, want string }{
		"a VM":                   {"vm/any -n " + ns, "error: vm \"any\" could not be looked for: you may not list virtualmachines.kubevirt.io in the cluster"},
		"a node":                 {"node/any", "error: node \"any\" could not be looked for: you may not list nodes in the cluster"},
		"an instance":            {"vmi/any -n " + ns, "error: vmi \"any\" is not there in namespace \"" + ns + "\""},
		"an instance of another": {"vmi/any -n default", "error: vmi \"any\" could not be looked for: you may not list virtualmachineinstances.kubevirt.io in the cluster"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := gpuctlAs(user, append([]string{"diagnose"}, strings.Fields(tc.args)...)...)
			if code != 1 || stdout != "" || !strings.HasPrefix(stderr, tc.want) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
			}
		})
	}
}

// closedPort returns an address on which nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	return listener.Addr().String()
}

// A cluster that cannot be asked is one clear line.
func TestDiagnoseUnreachable(t *testing.T) {
	c := shared.For(t)
	c.ServiceAccount("default", "expired")
	invalid := c.Token("default", "expired", time.Now().Add(time.Hour))
	invalid.BearerToken += "x"
	dead := c.Config()
	dead.Host = "https://" + closedPort(t)
	tests := map[string]struct {
		args []string
		want []string // words of the line
	}{
		"no kubeconfig":       {nil, []string{"load kubeconfig", "--kubeconfig"}},
		"a wrong path":        {[]string{"--kubeconfig", filepath.Join(t.TempDir(), "missing")}, []string{"missing", "no such file", "--kubeconfig"}},
		"a wrong context":     {[]string{"--kubeconfig", c.Kubeconfig(), "--context", "elsewhere"}, []string{"elsewhere", "--context"}},
		"a dead server":       {[]string{"--kubeconfig", c.KubeconfigFor(dead)}, []string{"connection refused", "is the API server at " + dead.Host + " up?"}},
		"an expired token":    {[]string{"--kubeconfig", c.KubeconfigFor(c.Token("default", "expired", time.Now().Add(-time.Hour)))}, []string{"log in again"}},
		"an invalid token":    {[]string{"--kubeconfig", c.KubeconfigFor(invalid)}, []string{"log in again"}},
		"a foreign authority": {[]string{"--kubeconfig", c.KubeconfigFor(&rest.Config{Host: c.Config().Host})}, []string{"certificate"}},
	}
	t.Setenv("HOME", t.TempDir())
	for _, name := range []string{"KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"} {
		t.Setenv(name, "")
	}
	for name, tc := range tests {
		for _, command := range []string{"diagnose", "status"} {
			t.Run(name+" "+command, func(t *testing.T) {
				began := time.Now()
				code, stdout, stderr := run(append([]string{command}, tc.args...)...)
				t.Logf("after %s: %s", time.Since(began).Round(time.Millisecond), stderr)
				if code != 1 || stdout != "" || !strings.HasPrefix(stderr, "error: ") || strings.Count(stderr, "\n") != 1 {
					t.Errorf("exit %d, stdout %q\n%s", code, stdout, stderr)
				}
				for _, words := range tc.want {
					if !strings.Contains(stderr, words) {
						t.Errorf("the line lacks %q", words)
					}
				}
			})
		}
	}
}
