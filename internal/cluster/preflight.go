package cluster

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Preflight reads what decides whether a release can be installed in a namespace,
// but for KubeVirt, which is chosen among [Client.KubeVirts]. An error says that the cluster does not answer at all.
func (c *Client) Preflight(ctx context.Context, namespace, release, variant string) (diagnose.Preflight, error) {
	p := diagnose.Preflight{Variant: variant}
	version, err := c.core.Discovery().ServerVersion()
	if err != nil {
		return p, c.Explain(fmt.Errorf("ask for the version of the API server: %w", err))
	}
	p.Server = version.GitVersion
	p.Major, _ = strconv.Atoi(version.Major)
	p.Minor, _ = strconv.Atoi(strings.TrimRight(version.Minor, "+"))
	unknown := func(what string, err error) {
		if err != nil {
			p.Unknown = append(p.Unknown, fmt.Sprintf("%s: %v", what, err))
		}
	}
	p.Operator, err = c.findOperator(ctx)
	unknown("gpu-operator", err)
	p.Denied, err = c.denied(ctx, namespace)
	unknown("your permissions", err)
	p.CRDOwner, err = c.crdOwner(ctx, namespace+"/"+release)
	unknown("the CRDs", err)
	return p, nil
}

// KubeVirts reads the KubeVirt CRs; none where the kind is not known.
func (c *Client) KubeVirts(ctx context.Context) ([]manifest.Document, error) {
	found, err := c.list(ctx, schema.GroupKind{Group: "kubevirt.io", Kind: "KubeVirt"})
	if meta.IsNoMatchError(err) {
		return nil, nil
	}
	return found, err
}

// findOperator returns gpu-operator's ClusterPolicy, nil when there is none.
func (c *Client) findOperator(ctx context.Context) (*diagnose.GPUOperator, error) {
	list, err := c.list(ctx, schema.GroupKind{Group: "nvidia.com", Kind: "ClusterPolicy"})
	if meta.IsNoMatchError(err) || err == nil && len(list) == 0 {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sandbox, _, _ := unstructured.NestedMap(list[0].Object, "spec", "sandboxWorkloads")
	enabled, _ := sandbox["enabled"].(bool)
	workload, _ := sandbox["defaultWorkload"].(string)
	return &diagnose.GPUOperator{Name: list[0].Meta("name"), Sandbox: enabled, DefaultWorkload: workload}, nil
}

// installed are the resources that a release consists of; those with true are of
// the whole cluster.
func installed() map[schema.GroupResource]bool {
	return map[schema.GroupResource]bool{
		{Resource: "namespaces"}: true,
		{Group: "apiextensions.k8s.io", Resource: "customresourcedefinitions"}:                 true,
		{Group: "rbac.authorization.k8s.io", Resource: "clusterroles"}:                         true,
		{Group: "rbac.authorization.k8s.io", Resource: "clusterrolebindings"}:                  true,
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicies"}:       true,
		{Group: "admissionregistration.k8s.io", Resource: "validatingadmissionpolicybindings"}: true,
		{Resource: "secrets"}:                                          false,
		{Resource: "configmaps"}:                                       false,
		{Resource: "serviceaccounts"}:                                  false,
		{Group: "rbac.authorization.k8s.io", Resource: "roles"}:        false,
		{Group: "rbac.authorization.k8s.io", Resource: "rolebindings"}: false,
		{Group: "apps", Resource: "daemonsets"}:                        false,
		{Group: "apps", Resource: "deployments"}:                       false,
		{Resource: "services"}:                                         false,
		{Group: "policy", Resource: "poddisruptionbudgets"}:            false,
		{Group: "batch", Resource: "jobs"}:                             false,
		{Group: "networking.k8s.io", Resource: "networkpolicies"}:      false,
	}
}

// denied returns what of a release the user may not create.
func (c *Client) denied(ctx context.Context, namespace string) ([]diagnose.Permission, error) {
	var out []diagnose.Permission
	for resource, wide := range installed() {
		attributes := &authorizationv1.ResourceAttributes{Verb: "create", Group: resource.Group, Resource: resource.Resource, Namespace: namespace}
		if wide {
			attributes.Namespace = ""
		}
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: attributes}}
		got, err := c.core.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err != nil {
			return nil, err
		}
		if !got.Status.Allowed {
			out = append(out, diagnose.Permission{Verb: "create", Resource: resource.String(), Namespace: attributes.Namespace})
		}
	}
	slices.SortFunc(out, func(a, b diagnose.Permission) int { return strings.Compare(a.Resource, b.Resource) })
	return out, nil
}

// crdOwner returns the release that has installed gpuctl's CRDs, "" when it is this
// one, or none.
func (c *Client) crdOwner(ctx context.Context, release string) (string, error) {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	crd, err := c.dynamic.Resource(crds).Get(ctx, gpuNodes.GroupResource().String(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	a := crd.GetAnnotations()
	owner := a["meta.helm.sh/release-namespace"] + "/" + a["meta.helm.sh/release-name"]
	if owner == "/" || owner == release {
		return "", nil
	}
	return owner, nil
}

// HookFailure returns why the pod of a hook's Job failed: its termination message,
// or what kept it from running. "" when nothing is known.
func (c *Client) HookFailure(ctx context.Context, namespace, job string) (string, error) {
	pods, err := c.core.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: "batch.kubernetes.io/job-name=" + job})
	if err != nil {
		return "", fmt.Errorf("list the pods of Job %s/%s: %w", namespace, job, err)
	}
	for i := range slices.Backward(pods.Items) {
		for _, s := range pods.Items[i].Status.ContainerStatuses {
			if s.State.Terminated != nil && s.State.Terminated.ExitCode != 0 && s.State.Terminated.Message != "" {
				return s.State.Terminated.Message, nil
			}
		}
		if why := podProblem(&pods.Items[i]); why != "" {
			return why, nil
		}
	}
	return "", nil
}
