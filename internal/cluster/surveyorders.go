package cluster

import (
	"context"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// tenancy are the kinds that say what can be ordered, by whom, and how much.
func tenancy(cozystack bool) []surveyed {
	kind := func(group, kind, loses string) surveyed {
		return surveyed{GroupKind: schema.GroupKind{Group: group, Kind: kind}, loses: loses, keep: forOrders}
	}
	all := []surveyed{
		kind(v1alpha1.GroupName, "GPUClass", "what can be ordered"),
		kind("", "Namespace", "who is a tenant"),
		kind("resource.k8s.io", "DeviceClass", "which resource names mean the same"),
	}
	if cozystack {
		return append(all, kind("helm.toolkit.fluxcd.io", "HelmRelease", "which budgets tenants have"))
	}
	return append(all,
		kind("", "ResourceQuota", "which budgets there are"),
		kind("hnc.x-k8s.io", "HierarchyConfiguration", "whether HNC has halted a namespace"),
	)
}

// SurveyOrders is Survey with all that orders are judged by, where the cluster has
// orders.
func (c *Client) SurveyOrders(ctx context.Context, namespace string) (Survey, error) {
	s, err := c.Survey(ctx, namespace)
	if _, absent := c.mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupName, Kind: "GPUDevice"}); err != nil || absent != nil {
		return s, err
	}
	more, err := c.surveyAll(ctx, namespace, tenancy(c.settings(ctx, &s) == "cozystack"))
	if err != nil {
		return s, err
	}
	s.Docs, s.Problems = append(s.Docs, more.Docs...), append(s.Problems, more.Problems...)
	_, err = c.mapper.RESTMapping(schema.GroupKind{Group: "hnc.x-k8s.io", Kind: "HierarchyConfiguration"})
	s.HNC = err == nil
	return s, nil
}

// forOrders keeps what orders are judged by, and of it no more than that.
func forOrders(d *manifest.Document) bool {
	if d.Kind() != "HelmRelease" {
		return true
	}
	trim(d.Object) // values have secrets
	return strings.HasPrefix(d.Meta("name"), tenantRelease)
}

// settings adds the ConfigMaps with gpuctl's settings where a controller runs, and returns
// the tenants' provider.
func (c *Client) settings(ctx context.Context, s *Survey) (provider string) {
	mapping, err := c.mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
	if err != nil {
		return ""
	}
	var found []manifest.Document
	for i := range s.Docs {
		if !IsController(&s.Docs[i]) {
			continue
		}
		u, err := c.dynamic.Resource(mapping.Resource).Namespace(s.Docs[i].Meta("namespace")).Get(ctx, v1alpha1.SettingsName, metav1.GetOptions{})
		switch {
		case err == nil:
			found = append(found, c.document(u))
			provider = text(u.Object, "data", v1alpha1.SettingProvider)
		case !apierrors.IsNotFound(err):
			s.Problems = append(s.Problems, diagnose.New("GPU0130", "cluster", diagnose.Values{
				"what": "ConfigMap " + v1alpha1.SettingsName, "problem": fmt.Sprintf("%v, so it is not known who is a tenant", err),
				"hint": "docs/diagnose.md has a ClusterRole with the rights",
			}))
		}
	}
	s.Docs = append(s.Docs, found...)
	return provider
}
