package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// KubeVirtNamespace holds KubeVirt and its CR, which has the same name.
const KubeVirtNamespace = "kubevirt"

// runKubeVirt does what virt-operator would: objects first, then the components,
// then the webhooks and APIs that these serve.
func (s *stack) runKubeVirt(ctx context.Context) error {
	served, err := s.installObjects(ctx)
	if err != nil {
		return err
	}
	kube, err := s.kubeComponents()
	if err != nil {
		return err
	}
	virt, err := s.virtComponents(ctx)
	if err != nil {
		return err
	}
	// The API server holds back the first objects of a new kind for 2 s, and the
	// components do without the CR for as long.
	created := make(chan error, 1)
	go func() { created <- s.createDeployedKubeVirt(ctx) }()
	err = s.serve(ctx, append(virt, kube...)...)
	if err := errors.Join(err, <-created); err != nil {
		return err
	}
	if err := s.startKubelets(); err != nil {
		return err
	}
	if err := create(ctx, s.dynamic, served); err != nil {
		return err
	}
	return s.finish(ctx)
}

// installObjects creates the objects of KubeVirt, but for the CR and for those
// that it returns, which make the API server call virt-api.
func (s *stack) installObjects(ctx context.Context) (served []unstructured.Unstructured, err error) {
	began := time.Now()
	m, err := readManifests(s.built.files["manifests.json"])
	if err != nil {
		return nil, err
	}
	ca, err := newAuthority("kubevirt.io")
	if err != nil {
		return nil, err
	}
	if err := trust(m.Install, ca.pem()); err != nil {
		return nil, err
	}
	if err := s.issueVirtCertificates(ca); err != nil {
		return nil, err
	}
	served, others := partition(m.Install, "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration", "APIService")
	if err := s.createBase(ctx, slices.Concat(m.Operator, m.CRDs), others); err != nil {
		return nil, err
	}
	s.mark("objects", began)
	return served, nil
}

// createBase creates objects, CRDs and namespaces first, and waits until the
// CRDs are served.
func (s *stack) createBase(ctx context.Context, lists ...[]unstructured.Unstructured) error {
	namespaces, others := partition(slices.Concat(lists...), "Namespace")
	// The first requests may come before the API server has set itself up.
	if err := poll(ctx, func(ctx context.Context) error { return create(ctx, s.dynamic, namespaces) }); err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error { return create(ctx, s.dynamic, others) }); err != nil {
		return err
	}
	crds, _ := partition(others, "CustomResourceDefinition")
	for i := range crds {
		if err := poll(ctx, func(ctx context.Context) error { return s.conditionTrue(ctx, &crds[i], "Established") }); err != nil {
			return err
		}
	}
	return nil
}

// conditionTrue returns an error unless the object has the condition.
func (s *stack) conditionTrue(ctx context.Context, u *unstructured.Unstructured, condition string) error {
	u, err := clientFor(s.dynamic, u).Get(ctx, u.GetName(), metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !hasCondition(u, condition) {
		return fmt.Errorf("%s %s is not %s", u.GetKind(), u.GetName(), condition)
	}
	return nil
}

// createDeployedKubeVirt creates the KubeVirt CR and reports what virt-operator
// reports when it is done.
func (s *stack) createDeployedKubeVirt(ctx context.Context) error {
	kv := newKubeVirt(map[string]any{"configuration": map[string]any{}})
	if err := create(ctx, s.dynamic, []unstructured.Unstructured{*kv}); err != nil {
		return err
	}
	condition := func(name, status string) any {
		return map[string]any{"type": name, "status": status, "reason": "AllComponentsReady", "message": "All components are ready."}
	}
	version := s.built.versions["kubevirt"]
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"phase":                   "Deployed",
		"defaultArchitecture":     runtime.GOARCH,
		"operatorVersion":         version,
		"targetKubeVirtVersion":   version,
		"observedKubeVirtVersion": version,
		"conditions": []any{
			condition("Available", "True"), condition("Progressing", "False"),
			condition("Degraded", "False"), condition("Created", "True"),
		},
	}})
	if err != nil {
		return fmt.Errorf("encode the status of KubeVirt: %w", err)
	}
	_, err = s.kubeVirts().Patch(ctx, kv.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

func newKubeVirt(spec map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
		"metadata": map[string]any{"name": KubeVirtNamespace, "namespace": KubeVirtNamespace},
		"spec":     spec,
	}}
}

// finish waits until everything works together, and starts what plays the nodes.
func (s *stack) finish(ctx context.Context) error {
	if err := s.becomeHandler(ctx); err != nil {
		return err
	}
	s.startHandlers()
	began := time.Now()
	s.loop(s.loopContext, endpointsInterval, "endpoints", s.publish)
	for _, check := range []func(context.Context) error{s.subresourcesServed, s.webhooksCalled, s.defaultAccountExists} {
		if err := poll(ctx, check); err != nil {
			return err
		}
	}
	s.mark("webhooks and APIs", began)
	return nil
}

// rejoin waits until virt-api is called again, if all that it takes is running.
// The API server takes a while to notice that an API is back.
func (s *stack) rejoin(ctx context.Context) error {
	for _, name := range []string{Etcd, APIServer, VirtAPI} {
		if c, ok := s.components[name]; !ok || !c.isRunning() {
			return nil
		}
	}
	if err := poll(ctx, s.subresourcesServed); err != nil {
		return err
	}
	return poll(ctx, s.webhooksCalled)
}

// subresourcesServed checks that the API server proxies to virt-api.
func (s *stack) subresourcesServed(ctx context.Context) error {
	for _, version := range []string{"v1", "v1alpha3"} {
		get := s.clientset.Discovery().RESTClient().Get().AbsPath("/apis/subresources.kubevirt.io", version)
		if err := get.Do(ctx).Error(); err != nil {
			return fmt.Errorf("ask for the subresources API %s: %w", version, err)
		}
	}
	return nil
}

// webhooksCalled checks that the API server asks virt-api about VMIs, by one
// that is mutated and one that is refused.
func (s *stack) webhooksCalled(ctx context.Context) error {
	vmi := newVMI(map[string]any{"devices": map[string]any{}, "resources": map[string]any{"requests": map[string]any{"memory": "1Mi"}}})
	dryRun := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	got, err := clientFor(s.dynamic, vmi).Create(ctx, vmi, dryRun)
	if err != nil {
		return err
	}
	if machine, _, _ := unstructured.NestedString(got.Object, "spec", "domain", "machine", "type"); machine == "" {
		return errors.New("virt-api's mutating webhooks are not called yet")
	}
	refused := newVMI(map[string]any{"devices": map[string]any{}, "cpu": map[string]any{"model": "host-passthrough", "isolateEmulatorThread": true}})
	if _, err := clientFor(s.dynamic, refused).Create(ctx, refused, dryRun); err == nil {
		return errors.New("virt-api's validating webhooks are not called yet")
	} else if !apierrors.IsInvalid(err) {
		return err
	}
	return nil
}

func newVMI(domain map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
		"metadata": map[string]any{"name": "probe", "namespace": metav1.NamespaceDefault},
		"spec":     map[string]any{"domain": domain},
	}}
}

// defaultAccountExists checks that pods can be created.
func (s *stack) defaultAccountExists(ctx context.Context) error {
	_, err := s.clientset.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Get(ctx, "default", metav1.GetOptions{})
	return err
}
