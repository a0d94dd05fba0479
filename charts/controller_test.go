package charts_test

import (
	"maps"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"
)

const (
	controllerName = "gpu-operator-hooks-controller"
	controllerDir  = "gpu-operator-hooks/templates/controller/"
	policySuffix   = ".gpu-operator-hooks.gpuctl-system.gpuctl.dev"
)

// as returns an object that was rendered, false when there is none.
func as[T any](t *testing.T, files map[string]string, kind, name string) (out T, found bool) {
	t.Helper()
	for file, content := range files {
		if path.Ext(file) != ".yaml" {
			continue
		}
		for document := range strings.SplitSeq("\n"+content, "\n---") {
			var o object
			if err := yaml.Unmarshal([]byte(document), &o); err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			if o.Kind != kind || o.Metadata.Name != name {
				continue
			}
			if err := yaml.Unmarshal([]byte(document), &out); err != nil {
				t.Fatalf("%s %s: %v", kind, name, err)
			}
			return out, true
		}
	}
	return out, false
}

// mustRender renders values that are fine.
func mustRender(t *testing.T, values string) map[string]string {
	t.Helper()
	files, err := render(t, load(t), values)
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// controllerObjects are the objects of the controller, "Kind name" each.
func controllerObjects(t *testing.T, files map[string]string) []string {
	t.Helper()
	var out []string
	for _, o := range objects(t, files) {
		if o.Metadata.Labels["app.kubernetes.io/component"] == "controller" {
			out = append(out, o.Kind+" "+o.Metadata.Name)
		}
	}
	slices.Sort(out)
	return out
}

// config returns the file that the controller reads.
func config(t *testing.T, files map[string]string) map[string]any {
	t.Helper()
	type configMap struct{ Data map[string]string }
	cm, _ := as[configMap](t, files, "ConfigMap", controllerName)
	if names := slices.Collect(maps.Keys(cm.Data)); !slices.Equal(names, []string{"config.yaml"}) {
		t.Fatalf("the ConfigMap has the keys %q", names)
	}
	var out map[string]any
	if err := yaml.UnmarshalStrict([]byte(cm.Data["config.yaml"]), &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// job is what these tests look at of a Job.
type job struct {
	Spec struct {
		Template struct {
			Spec struct{ Containers []struct{ Args []string } }
		}
	}
}

// args returns the arguments of a Job of the hook.
func args(t *testing.T, files map[string]string, name string) []string {
	t.Helper()
	j, found := as[job](t, files, "Job", name)
	if !found || len(j.Spec.Template.Spec.Containers) != 1 {
		t.Fatalf("Job %s has %d containers", name, len(j.Spec.Template.Spec.Containers))
	}
	return j.Spec.Template.Spec.Containers[0].Args
}

// The program refuses keys that it does not know, and needs those that it knows.
func TestControllerConfig(t *testing.T) {
	const permit = "permittedHostDevices: {pciHostDevices: [{pciVendorSelector: \"10DE:2335\", resourceName: nvidia.com/GH100_H200_SXM_141GB}]}"
	for name, tc := range map[string]struct {
		values string
		want   map[string]any
	}{
		"defaults": {"gpu: {enabled: true}", map[string]any{
			"logLevel": "info", "metrics": map[string]any{"port": 8443.0}, "health": map[string]any{"port": 8081.0},
			"leaderElection": map[string]any{"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"},
			"wiring":         map[string]any{"permit": []any{}, "staleAfter": "24h", "resync": "5m"},
		}},
		"all else": {
			"{gpu: {enabled: true, " + permit + "}, controller: {logLevel: debug, staleAfter: 1h30m, resync: 90s, metrics: {enabled: false, port: 9443}, leaderElection: {leaseDuration: 1m, renewDeadline: 40s, retryPeriod: 500ms}}}",
			map[string]any{
				"logLevel": "debug", "metrics": map[string]any{"port": 0.0}, "health": map[string]any{"port": 8081.0},
				"leaderElection": map[string]any{"leaseDuration": "1m", "renewDeadline": "40s", "retryPeriod": "500ms"},
				"wiring":         map[string]any{"permit": []any{"10DE:2335=nvidia.com/GH100_H200_SXM_141GB"}, "staleAfter": "1h30m", "resync": "90s"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := config(t, mustRender(t, tc.values))
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("config.yaml (-want +got):\n%s", diff)
			}
			durations := maps.Clone(got["leaderElection"].(map[string]any))
			wiring := got["wiring"].(map[string]any)
			durations["staleAfter"], durations["resync"] = wiring["staleAfter"], wiring["resync"]
			for key, d := range durations {
				if _, err := time.ParseDuration(d.(string)); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			}
		})
	}
}

// Whatever a name consists of, hook and controller are given the same.
func TestHookAndControllerPermitTheSame(t *testing.T) {
	files := mustRender(t, `
gpu:
  enabled: true
  permittedHostDevices:
    pciHostDevices: [{pciVendorSelector: "0010:2335", resourceName: nvidia.com/A}]
    mediatedDevices:
      - {mdevNameSelector: "GRID T4-16Q", resourceName: nvidia.com/B}
      - {mdevNameSelector: "\"'# {{ .x }} &<a>|", resourceName: nvidia.com/C}
      - {mdevNameSelector: "- a\n\tb\\ ", resourceName: nvidia.com/D}
`)
	var hook []any
	for _, arg := range args(t, files, "gpu-operator-hooks-wire") {
		if permit, ok := strings.CutPrefix(arg, "--permit="); ok {
			hook = append(hook, permit)
		}
	}
	want := []any{"0010:2335=nvidia.com/A", "GRID T4-16Q=nvidia.com/B", "\"'# {{ .x }} &<a>|=nvidia.com/C", "- a\n\tb\\ =nvidia.com/D"}
	if diff := cmp.Diff(want, hook); diff != "" {
		t.Errorf("the hook (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, config(t, files)["wiring"].(map[string]any)["permit"]); diff != "" {
		t.Errorf("the controller (-want +got):\n%s", diff)
	}
}

// Another configuration makes new pods, of which only the checksum is another.
func TestConfigRollsTheController(t *testing.T) {
	before := mustRender(t, "gpu: {enabled: true}")
	after := mustRender(t, "{gpu: {enabled: true}, controller: {logLevel: debug}}")
	var changed []string
	for name := range before {
		if before[name] != after[name] {
			changed = append(changed, name)
		}
	}
	slices.Sort(changed)
	if want := []string{controllerDir + "configmap.yaml", controllerDir + "deployment.yaml"}; !slices.Equal(changed, want) {
		t.Fatalf("changed are %q, want %q", changed, want)
	}
	was, is := strings.Split(before[changed[1]], "\n"), strings.Split(after[changed[1]], "\n")
	if len(was) != len(is) {
		t.Fatal(cmp.Diff(was, is))
	}
	var lines []string
	for i := range was {
		if was[i] != is[i] {
			lines = append(lines, is[i])
		}
	}
	if len(lines) != 1 || !strings.Contains(lines[0], "checksum/config: ") {
		t.Errorf("changed lines of the Deployment are %q", lines)
	}
	// An image's tag, on the other hand, is no configuration.
	tagged := mustRender(t, "{gpu: {enabled: true}, image: {tag: other}}")
	if before[changed[0]] != tagged[changed[0]] {
		t.Errorf("the tag is in the configuration:\n%s", tagged[changed[0]])
	}
}

// What is switched off is not rendered, and what it needs neither.
func TestPartsOfTheController(t *testing.T) {
	const clusterName = "gpuctl:gpuctl-system:gpu-operator-hooks"
	always := []string{
		"ClusterRole " + clusterName + "-controller", "ClusterRoleBinding " + clusterName + "-controller",
		"ConfigMap " + controllerName, "Deployment " + controllerName, "Role " + controllerName, "RoleBinding " + controllerName, "ServiceAccount " + controllerName,
		"ValidatingAdmissionPolicy controller" + policySuffix, "ValidatingAdmissionPolicyBinding controller" + policySuffix,
		"ValidatingAdmissionPolicy controller-own" + policySuffix, "ValidatingAdmissionPolicyBinding controller-own" + policySuffix,
	}
	budget, network := "PodDisruptionBudget "+controllerName, "NetworkPolicy "+controllerName
	metrics := []string{"Service " + controllerName, "ClusterRole " + clusterName + "-metrics-reader"}
	const webhookName = "gpu-operator-hooks-webhook"
	webhooks := []string{
		"Service " + webhookName, "MutatingWebhookConfiguration virtualmachines" + policySuffix, "ValidatingWebhookConfiguration virtualmachines" + policySuffix,
		"ValidatingAdmissionPolicy controller-orders" + policySuffix, "ValidatingAdmissionPolicyBinding controller-orders" + policySuffix,
		"ValidatingAdmissionPolicy controller-vms" + policySuffix, "ValidatingAdmissionPolicyBinding controller-vms" + policySuffix,
	}
	for name, tc := range map[string]struct {
		values string
		want   []string
	}{
		"all":           {"gpu: {enabled: true}", slices.Concat(always, metrics, []string{budget, network})},
		"one replica":   {"{gpu: {enabled: true}, controller: {replicas: 1}}", slices.Concat(always, metrics, []string{network})},
		"no budget":     {"{gpu: {enabled: true}, controller: {podDisruptionBudget: {enabled: false}}}", slices.Concat(always, metrics, []string{network})},
		"no metrics":    {"{gpu: {enabled: true}, controller: {metrics: {enabled: false}}}", slices.Concat(always, []string{budget})},
		"no networks":   {"{gpu: {enabled: true}, networkPolicy: {enabled: false}}", slices.Concat(always, metrics, []string{budget})},
		"webhooks":      {"{gpu: {enabled: true}, orders: {enabled: true}}", slices.Concat(always, metrics, webhooks, []string{budget, network, "Secret " + webhookName + "-cert"})},
		"webhooks only": {"{gpu: {enabled: true}, controller: {metrics: {enabled: false}}, orders: {enabled: true}}", slices.Concat(always, webhooks, []string{budget, network, "Secret " + webhookName + "-cert"})},
		"cert-manager": {"{gpu: {enabled: true}, orders: {enabled: true}, webhook: {certManager: {enabled: true}}}", slices.Concat(always, metrics, webhooks, []string{
			budget, network, "Certificate " + webhookName, "Certificate " + webhookName + "-ca", "Issuer " + webhookName, "Issuer " + webhookName + "-self",
		})},
		"an issuer of yours": {"{gpu: {enabled: true}, orders: {enabled: true}, webhook: {certManager: {enabled: true, issuerRef: {name: ours}}}}", slices.Concat(always, metrics, webhooks, []string{budget, network, "Certificate " + webhookName})},
		"no controller":      {"{gpu: {enabled: true}, controller: {enabled: false}}", nil},
		"for containers":     {"gpu: {enabled: true, variant: container}", nil},
		"no GPUs":            {"gpu: {enabled: false}", nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, tc.values)
			slices.Sort(tc.want)
			if diff := cmp.Diff(tc.want, controllerObjects(t, files)); diff != "" {
				t.Errorf("rendered (-want +got):\n%s", diff)
			}
			if rights := files[controllerDir+"rbac.yaml"]; strings.Contains(rights, "tokenreviews") != slices.Contains(tc.want, metrics[0]) {
				t.Errorf("the right to review tokens does not go with the metrics:\n%s", rights)
			}
		})
	}
}

// policy is what these tests look at of an admission policy.
type policy struct {
	Spec struct {
		FailurePolicy    string
		MatchConstraints map[string]any
		MatchConditions  []struct{ Name, Expression string }
		Variables        []map[string]string
		Validations      []struct{ Expression, Message, MessageExpression string }
	}
}

// The controller is held to what the hook is held to.
func TestHookAndControllerAreHeldToTheSame(t *testing.T) {
	files := mustRender(t, "gpu: {enabled: true}")
	hook, ok1 := as[policy](t, files, "ValidatingAdmissionPolicy", "hook"+policySuffix)
	controller, ok2 := as[policy](t, files, "ValidatingAdmissionPolicy", "controller"+policySuffix)
	if !ok1 || !ok2 || len(hook.Spec.Validations) < 4 || hook.Spec.FailurePolicy != "Fail" {
		t.Fatalf("policies %t, %t with %d validations, failure policy %q", ok1, ok2, len(hook.Spec.Validations), hook.Spec.FailurePolicy)
	}
	for name, p := range map[string]policy{"hook": hook, "controller": controller} {
		account := "request.userInfo.username == 'system:serviceaccount:gpuctl-system:gpu-operator-hooks-" + name + "'"
		if c := p.Spec.MatchConditions; len(c) != 1 || c[0].Expression != account {
			t.Errorf("the policy of the %s is about %v, want %s", name, c, account)
		}
		p.Spec.MatchConditions[0].Name, p.Spec.MatchConditions[0].Expression = "", ""
		for i := range p.Spec.Validations {
			m := &p.Spec.Validations[i].Message
			if !strings.Contains(*m, "the gpuctl "+name+" ") {
				t.Errorf("%q does not say that it is about the %s", *m, name)
			}
			*m = strings.Replace(*m, name, "subject", 1)
		}
	}
	if diff := cmp.Diff(hook, controller); diff != "" {
		t.Errorf("the policies differ (-hook +controller):\n%s", diff)
	}
	if o, _ := as[object](t, files, "ValidatingAdmissionPolicy", "controller"+policySuffix); o.Metadata.Annotations["helm.sh/hook"] != "" {
		t.Error("the controller's policy goes with the hook")
	}
}

// binding is what these tests look at of an admission policy's binding.
type binding struct {
	Spec struct {
		PolicyName        string
		ValidationActions []string
	}
}

// A policy that is not bound holds nobody.
func TestPoliciesAreBound(t *testing.T) {
	files := mustRender(t, "{gpu: {enabled: true}, orders: {enabled: true}}")
	var policies int
	for _, o := range objects(t, files) {
		if o.Kind != "ValidatingAdmissionPolicy" {
			continue
		}
		policies++
		b, _ := as[binding](t, files, o.Kind+"Binding", o.Metadata.Name)
		if b.Spec.PolicyName != o.Metadata.Name || !slices.Equal(b.Spec.ValidationActions, []string{"Deny"}) {
			t.Errorf("the binding of %s is %+v", o.Metadata.Name, b.Spec)
		}
	}
	if policies != 9 {
		t.Errorf("%d policies, want the agent's, the hook's, the controller's four and three of references", policies)
	}
}

// role is what these tests look at of a Role.
type role struct {
	Rules []struct{ APIGroups, Resources, ResourceNames, Verbs []string }
}

// Before the wiring is taken away the controller, and nothing else, is stopped.
func TestUnwireStopsTheController(t *testing.T) {
	for name, tc := range map[string]struct {
		values, prefix string
		want           []string // the Deployment
	}{
		"the chart's name":  {"gpu: {enabled: true}", "gpu-operator-hooks", []string{controllerName}},
		"a name of its own": {"{gpu: {enabled: true}, fullnameOverride: vms}", "vms", []string{"vms-controller"}},
		"no controller":     {"{gpu: {enabled: true}, controller: {enabled: false}}", "gpu-operator-hooks", nil},
	} {
		t.Run(name, func(t *testing.T) {
			files := mustRender(t, tc.values)
			stop := func(job string) (names []string) {
				for _, arg := range args(t, files, tc.prefix+"-"+job) {
					if of, ok := strings.CutPrefix(arg, "--stop-controller="); ok {
						names = append(names, of)
					}
				}
				return names
			}
			if wire, unwire := stop("wire"), stop("unwire"); len(wire) != 0 || !slices.Equal(unwire, tc.want) {
				t.Errorf("wire stops %q, unwire %q, want %q", wire, unwire, tc.want)
			}
			rights := map[string][]string{}
			for _, name := range tc.want {
				rights = map[string][]string{"deployments": {"get"}, "deployments/scale": {"update"}}
				if _, found := as[object](t, files, "Deployment", name); !found {
					t.Errorf("there is no Deployment %s", name)
				}
			}
			got := map[string][]string{}
			r, _ := as[role](t, files, "Role", tc.prefix+"-hook")
			for _, rule := range r.Rules {
				if slices.Contains(rule.APIGroups, "apps") {
					if !slices.Equal(rule.ResourceNames, tc.want) {
						t.Errorf("the hook's rights are to %q", rule.ResourceNames)
					}
					got[rule.Resources[0]] = rule.Verbs
				}
			}
			if diff := cmp.Diff(rights, got); diff != "" {
				t.Errorf("the hook's rights (-want +got):\n%s", diff)
			}
		})
	}
}
