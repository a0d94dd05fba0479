// Command manifests prints the objects with which virt-operator installs
// KubeVirt, and those that virt-operator itself needs, as one JSON document.
// They come from the functions that virt-operator calls.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	kubevirtv1 "kubevirt.io/api/core/v1"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/components"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/install"
	"kubevirt.io/kubevirt/pkg/virt-operator/resource/generate/rbac"
	"kubevirt.io/kubevirt/pkg/virt-operator/util"
)

const namespace = "kubevirt"

// manifests is the document: lists of objects, each in an order in which they
// can be created.
type manifests struct {
	Operator []runtime.Object `json:"operator"` // what is on a cluster before virt-operator runs
	CRDs     []runtime.Object `json:"crds"`     // all but that of KubeVirt, which is among Operator
	Install  []runtime.Object `json:"install"`  // the rest of what virt-operator creates
}

func main() {
	if err := run(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "manifests:", err)
		os.Exit(1)
	}
}

func run(out io.Writer) error {
	operator, err := operatorObjects()
	if err != nil {
		return err
	}
	kv := &kubevirtv1.KubeVirt{ObjectMeta: metav1.ObjectMeta{Name: "kubevirt", Namespace: namespace}}
	strategy, err := install.GenerateCurrentInstallStrategy(util.GetTargetConfigFromKV(kv), "", namespace)
	if err != nil {
		return fmt.Errorf("generate the install strategy: %w", err)
	}
	m := manifests{Operator: operator, CRDs: objects(strategy.CRDs()), Install: installObjects(strategy)}
	for _, list := range [][]runtime.Object{m.Operator, m.CRDs, m.Install} {
		if err := setKinds(list); err != nil {
			return err
		}
	}
	return json.NewEncoder(out).Encode(m)
}

func operatorObjects() ([]runtime.Object, error) {
	crd, err := components.NewKubeVirtCrd()
	if err != nil {
		return nil, fmt.Errorf("generate the CRD of KubeVirt: %w", err)
	}
	list := []runtime.Object{
		crd,
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{"kubevirt.io": ""}}},
		components.NewKubeVirtPriorityClassCR(),
	}
	for _, o := range rbac.GetAllOperator(namespace) {
		list = append(list, o.(runtime.Object))
	}
	return list, nil
}

// installObjects leaves out what makes pods (Deployments, the DaemonSet), what
// needs an API that a bare cluster lacks (monitoring, routes, SCCs), Secrets,
// instance types and preferences.
func installObjects(s *install.Strategy) []runtime.Object {
	var list []runtime.Object
	list = append(list, objects(s.ServiceAccounts())...)
	list = append(list, objects(s.ClusterRoles())...)
	list = append(list, objects(s.ClusterRoleBindings())...)
	list = append(list, objects(s.Roles())...)
	list = append(list, objects(s.RoleBindings())...)
	list = append(list, objects(s.Services())...)
	list = append(list, objects(s.ConfigMaps())...)
	list = append(list, objects(s.ValidatingAdmissionPolicies())...)
	list = append(list, objects(s.ValidatingAdmissionPolicyBindings())...)
	for _, c := range s.MutatingWebhookConfigurations() {
		// virt-operator installs that of launcher pods with a feature gate only.
		if c.Name != components.VirtLauncherPodMutatingWebhookName {
			list = append(list, c)
		}
	}
	for _, c := range s.ValidatingWebhookConfigurations() {
		// virt-operator's own webhooks: without it, every call would fail.
		if c.Name != components.KubeVirtOperatorValidatingWebhookName {
			list = append(list, c)
		}
	}
	return append(list, objects(s.APIServices())...)
}

func objects[T runtime.Object](list []T) []runtime.Object {
	all := make([]runtime.Object, len(list))
	for i, o := range list {
		all[i] = o
	}
	return all
}

// setKinds sets apiVersion and kind by type: not every generator does.
func setKinds(list []runtime.Object) error {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		clientgoscheme.AddToScheme, apiextensionsv1.AddToScheme, apiregistrationv1.AddToScheme,
	} {
		if err := add(scheme); err != nil {
			return fmt.Errorf("register the API types: %w", err)
		}
	}
	for _, o := range list {
		kinds, _, err := scheme.ObjectKinds(o)
		if err != nil {
			return fmt.Errorf("find the kind of a %T: %w", o, err)
		}
		o.GetObjectKind().SetGroupVersionKind(kinds[0])
	}
	return nil
}
