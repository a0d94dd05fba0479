package charts_test

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const webhookConfiguration = "virtualmachines" + policySuffix

// webhooks is what these tests look at of a webhook configuration.
type webhooks struct {
	Metadata struct{ Annotations map[string]string }
	Webhooks []struct {
		Name                                    string
		ClientConfig                            map[string]any
		Rules                                   []map[string]any
		FailurePolicy, MatchPolicy, SideEffects string
		ReinvocationPolicy                      string
		TimeoutSeconds                          int
		NamespaceSelector, ObjectSelector       map[string]any
		MatchConditions                         []struct{ Name, Expression string }
	}
}

// An outage reaches new orders, and starts of VMs that name devices, and nothing else.
func TestWebhooksAreNarrow(t *testing.T) {
	files := mustRender(t, "{gpu: {enabled: true}, orders: {enabled: true}}")
	referring := map[string]any{"gpuctl.dev/device-reference": "true"}
	launchers := map[string]any{"gpuctl.dev/device-reference": "true", "kubevirt.io": "virt-launcher"}
	type called struct {
		path, group, version, resource string
		sideEffects, reinvocation      string
		seconds                        int
		labels                         map[string]any
		conditions                     []string
	}
	for kind, want := range map[string]map[string]called{
		"ValidatingWebhookConfiguration": {
			"gpudevices.gpuctl.dev": {
				"/validate-gpuctl-dev-v1alpha1-gpudevice", v1alpha1.GroupVersion.Group, v1alpha1.GroupVersion.Version, "gpudevices", "None", "", 5, nil,
				[]string{"request.userInfo.username != 'system:serviceaccount:gpuctl-system:" + controllerName + "'"},
			},
			"virtualmachineinstances.gpuctl.dev": {
				"/validate-kubevirt-io-v1-virtualmachineinstance", "kubevirt.io", "v1", "virtualmachineinstances", "None", "", 5, referring, nil,
			},
		},
		"MutatingWebhookConfiguration": {
			"virtualmachineinstances.gpuctl.dev": {
				"/mutate-kubevirt-io-v1-virtualmachineinstance", "kubevirt.io", "v1", "virtualmachineinstances", "NoneOnDryRun", "IfNeeded", 5, referring, nil,
			},
			"pods.gpuctl.dev": {"/mutate-v1-pod", "", "v1", "pods", "NoneOnDryRun", "IfNeeded", 10, launchers, nil},
		},
	} {
		c, _ := as[webhooks](t, files, kind, webhookConfiguration)
		got := map[string]called{}
		for _, w := range c.Webhooks {
			is := called{sideEffects: w.SideEffects, reinvocation: w.ReinvocationPolicy, seconds: w.TimeoutSeconds}
			is.path, _ = w.ClientConfig["service"].(map[string]any)["path"].(string)
			is.labels, _ = w.ObjectSelector["matchLabels"].(map[string]any)
			for _, condition := range w.MatchConditions {
				is.conditions = append(is.conditions, condition.Expression)
			}
			wanted := want[w.Name]
			is.group, is.version, is.resource = wanted.group, wanted.version, wanted.resource
			got[w.Name] = is
			rules := []map[string]any{{
				"apiGroups": []any{is.group}, "apiVersions": []any{is.version}, "operations": []any{"CREATE"}, "resources": []any{is.resource}, "scope": "Namespaced",
			}}
			if diff := cmp.Diff(rules, w.Rules); diff != "" {
				t.Errorf("%s %s: rules (-want +got):\n%s", kind, w.Name, diff)
			}
			selector := map[string]any{"matchExpressions": []any{map[string]any{
				"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": []any{"kube-system", "kube-public", "kube-node-lease", "gpuctl-system"},
			}}}
			if diff := cmp.Diff(selector, w.NamespaceSelector); diff != "" {
				t.Errorf("%s %s: namespaces (-want +got):\n%s", kind, w.Name, diff)
			}
			if w.FailurePolicy != "Fail" || w.MatchPolicy != "Equivalent" {
				t.Errorf("%s %s: failure policy %s, match policy %s", kind, w.Name, w.FailurePolicy, w.MatchPolicy)
			}
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(called{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", kind, diff)
		}
	}
}

// The API server calls mutating webhooks in the order of their configurations' names. Ours
// comes after KubeVirt's, which changes each VMI, whatever the release is called: else it
// would be asked twice.
func TestMutatingWebhooksComeAfterKubeVirts(t *testing.T) {
	for name, tc := range map[string]struct {
		release, values string
	}{
		"as usual":           {first.Name, "{}"},
		"early in the order": {"aaa", "{}"},
		"a name of its own":  {first.Name, "{fullnameOverride: aa-top}"},
		"another one":        {first.Name, "{nameOverride: aa-top}"},
		"a number":           {"0", "{}"},
	} {
		t.Run(name, func(t *testing.T) {
			release := first
			release.Name, release.Namespace = tc.release, "aaa"
			files, err := renderAs(t, load(t), "{gpu: {enabled: true}, orders: {enabled: true}, "+strings.Trim(tc.values, "{}")+"}", release)
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range objects(t, files) {
				if o.Kind == "MutatingWebhookConfiguration" {
					names = append(names, o.Metadata.Name)
				}
			}
			if len(names) != 1 || names[0] <= "virt-api-mutator" {
				t.Errorf("the names are %q", names)
			}
		})
	}
}

// What is called is served.
func TestWebhookPathIsServed(t *testing.T) {
	c, _ := as[webhooks](t, mustRender(t, "{gpu: {enabled: true}, orders: {enabled: true}}"), "ValidatingWebhookConfiguration", webhookConfiguration)
	handler, err := os.ReadFile("../internal/webhook/devices.go")
	if path, _ := c.Webhooks[0].ClientConfig["service"].(map[string]any)["path"].(string); err != nil || !strings.Contains(string(handler), `DevicesPath = "`+path+`"`) {
		t.Errorf("%q is served by nobody: %v", path, err)
	}
}

// One switch has orders met: the program is told what the values say, and who is a tenant.
func TestOrdersAreTheControllers(t *testing.T) {
	for name, tc := range map[string]struct {
		values string
		want   any
	}{
		"off": {"gpu: {enabled: true}", nil},
		"on": {"{gpu: {enabled: true}, orders: {enabled: true}}", map[string]any{
			"enabled": true, "resourceNames": []any{}, "provider": "labels",
			"tenants": "kubernetes.io/metadata.name notin (kube-system,kube-public,kube-node-lease),kubernetes.io/metadata.name!=gpuctl-system",
		}},
		"in Cozystack": {
			"{gpu: {enabled: true, resourceNames: [example.com/gpu]}, orders: {enabled: true}, tenants: {selector: 'a in (b),c', provider: cozystack}}",
			map[string]any{"enabled": true, "resourceNames": []any{"example.com/gpu"}, "provider": "cozystack", "tenants": "a in (b),c,kubernetes.io/metadata.name!=gpuctl-system"},
		},
		"for everybody": {"{gpu: {enabled: true}, orders: {enabled: true}, tenants: {selector: ''}}", map[string]any{
			"enabled": true, "resourceNames": []any{}, "provider": "labels", "tenants": "kubernetes.io/metadata.name!=gpuctl-system",
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got := config(t, mustRender(t, tc.values))
			if diff := cmp.Diff(tc.want, got["orders"]); diff != "" {
				t.Errorf("settings (-want +got):\n%s", diff)
			}
			if _, served := got["webhook"]; served != (tc.want != nil) {
				t.Errorf("the webhooks are served: %t", served)
			}
		})
	}
}

// Orders that nobody acts on are an error, which says what to set.
func TestOrdersNeedTheController(t *testing.T) {
	_, err := render(t, load(t), "{gpu: {enabled: true}, orders: {enabled: true}, controller: {enabled: false}}")
	if err == nil || !strings.Contains(err.Error(), "orders.enabled: nobody acts on orders without the controller: set controller.enabled=true, or orders.enabled=false") {
		t.Errorf("the error is %v", err)
	}
	mustRender(t, "{orders: {enabled: true}, controller: {enabled: false}}") // nothing is rendered
}

// The controller reads what orders follow from, and writes what is its own: with orders
// only, and of providers only the one.
func TestRightsOfOrders(t *testing.T) {
	common := map[string][]string{
		"gpuclasses": {"get", "list", "watch"}, "gpudevices": {"get", "list", "watch", "create", "update", "delete"}, "gpuclasses/status": {"update"}, "gpudevices/status": {"update"},
		"namespaces": {"get", "list", "watch"}, "deviceclasses": {"list", "watch"},
		"pods": {"list", "watch"}, "daemonsets": {"list", "watch"}, "virtualmachineinstances": {"list", "watch", "create", "patch", "get"},
		"virtualmachines": {"list", "get", "watch", "patch"}, "persistentvolumeclaims": {"get"}, "persistentvolumes": {"get"},
		"own leases": {"create", "list"}, "own configmaps": {"create"}, "own configmaps gpuctl-ledger,gpuctl-settings": {"get", "update"},
	}
	with := func(more map[string][]string) map[string][]string {
		out := maps.Clone(common)
		maps.Copy(out, more)
		return out
	}
	for name, tc := range map[string]struct {
		values string
		want   map[string][]string
	}{
		"none":      {"gpu: {enabled: true}", map[string][]string{}},
		"labels":    {"{gpu: {enabled: true}, orders: {enabled: true}}", with(map[string][]string{"resourcequotas": {"list", "watch"}, "hierarchyconfigurations": {"list", "watch"}})},
		"Cozystack": {"{gpu: {enabled: true}, orders: {enabled: true}, tenants: {provider: cozystack}}", with(map[string][]string{"helmreleases": {"list", "watch"}})},
	} {
		t.Run(name, func(t *testing.T) {
			got := controllerRights(t, mustRender(t, tc.values))
			before := controllerRights(t, mustRender(t, "gpu: {enabled: true}"))
			maps.DeleteFunc(got, func(what string, verbs []string) bool {
				return slices.Equal(verbs, before[what]) || strings.Contains(what, "webhookconfigurations") || strings.HasPrefix(what, "own secrets")
			})
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("rights more than without orders (-want +got):\n%s", diff)
			}
		})
	}
}

// controllerRights returns the controller's verbs by resource and names; "own" are those
// in its own namespace.
func controllerRights(t *testing.T, files map[string]string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for document := range strings.SplitSeq(files[controllerDir+"rbac.yaml"], "\n---") {
		var r struct {
			Kind string
			role
		}
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			t.Fatal(err)
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				key := strings.TrimSpace(resource + " " + strings.Join(rule.ResourceNames, ","))
				if r.Kind == "Role" {
					key = "own " + key
				}
				out[key] = append(out[key], rule.Verbs...)
			}
		}
	}
	return out
}

// The program keeps the certificate of the very Service that is called, and may touch
// nothing else than the Secret and the configuration that it is told of.
func TestWebhookCertificateIsTheControllers(t *testing.T) {
	files := mustRender(t, "{gpu: {enabled: true}, orders: {enabled: true}}")
	got := config(t, files)["webhook"].(map[string]any)
	var service any
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		c, _ := as[webhooks](t, files, kind, got["configuration"].(string))
		for _, w := range c.Webhooks {
			if of := w.ClientConfig["service"].(map[string]any)["name"]; service != nil && of != service {
				t.Errorf("%s calls %v, another one %v", w.Name, of, service)
			}
			service = w.ClientConfig["service"].(map[string]any)["name"]
		}
	}
	want := map[string]any{"enabled": true, "port": 9443.0, "secret": "gpu-operator-hooks-webhook-cert", "service": service, "configuration": webhookConfiguration}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string][]string{
		"secrets " + want["secret"].(string):                      {"get", "update"},
		"mutatingwebhookconfigurations " + webhookConfiguration:   {"get", "update"},
		"validatingwebhookconfigurations " + webhookConfiguration: {"get", "update"},
	}, rights(t, files)); diff != "" {
		t.Errorf("rights (-want +got):\n%s", diff)
	}
	type secret struct{ Data, StringData map[string]string }
	if s, found := as[secret](t, files, "Secret", want["secret"].(string)); !found || len(s.Data)+len(s.StringData) > 0 {
		t.Errorf("Secret %t with data, which an upgrade would put back: %v", found, s)
	}
}

// With cert-manager the program is told of files, and has no right to Secrets.
func TestWebhookCertificateIsCertManagers(t *testing.T) {
	files := mustRender(t, "{gpu: {enabled: true}, orders: {enabled: true}, webhook: {certManager: {enabled: true, issuerRef: {kind: ClusterIssuer, name: ours}}}}")
	type certificate struct {
		Spec struct {
			SecretName string
			DNSNames   []string
			IssuerRef  map[string]string
		}
	}
	made, _ := as[certificate](t, files, "Certificate", "gpu-operator-hooks-webhook")
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		c, _ := as[webhooks](t, files, kind, webhookConfiguration)
		if from := c.Metadata.Annotations["cert-manager.io/inject-ca-from"]; from != "gpuctl-system/gpu-operator-hooks-webhook" {
			t.Errorf("the caBundle of the %s is injected from %q", kind, from)
		}
	}
	if !slices.Equal(made.Spec.DNSNames, []string{"gpu-operator-hooks-webhook.gpuctl-system.svc"}) || made.Spec.IssuerRef["name"] != "ours" || made.Spec.IssuerRef["kind"] != "ClusterIssuer" {
		t.Errorf("certificate %+v", made.Spec)
	}
	if diff := cmp.Diff(map[string]any{"enabled": true, "port": 9443.0, "certDir": "/etc/gpuctl-webhook"}, config(t, files)["webhook"]); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got := rights(t, files); len(got) > 0 {
		t.Errorf("rights %v", got)
	}
	deployment := files[controllerDir+"deployment.yaml"]
	for _, line := range []string{"mountPath: /etc/gpuctl-webhook", "secretName: " + made.Spec.SecretName} {
		if !strings.Contains(deployment, line) {
			t.Errorf("no %q in\n%s", line, deployment)
		}
	}
}

// rights returns the controller's to Secrets and webhook configurations: verbs by
// resource and name.
func rights(t *testing.T, files map[string]string) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for document := range strings.SplitSeq(files[controllerDir+"rbac.yaml"], "\n---") {
		var r role
		if err := yaml.Unmarshal([]byte(document), &r); err != nil {
			t.Fatal(err)
		}
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				if resource == "secrets" || strings.HasSuffix(resource, "webhookconfigurations") {
					out[resource+" "+strings.Join(rule.ResourceNames, ",")] = rule.Verbs
				}
			}
		}
	}
	return out
}

// Two servers cannot listen on one port.
func TestWebhookPortIsItsOwn(t *testing.T) {
	_, err := render(t, load(t), "{gpu: {enabled: true}, controller: {metrics: {port: 9443}}, orders: {enabled: true}}")
	if err == nil || !strings.Contains(err.Error(), "webhook.port: 9443 is controller.metrics.port as well") {
		t.Errorf("the error is %v", err)
	}
}
