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
func tenancy() []surveyed {
	kind := func(group, kind, loses string) surveyed {
		return surveyed{GroupKind: schema.GroupKind{Group: group, Kind: kind}, loses: loses, keep: forOrders}
	}
	return []surveyed{
		kind(v1alpha1.GroupName, "GPUClass", "what can be ordered"),
		kind("", "Namespace", "who is a tenant"),
		kind("", "ResourceQuota", "which budgets there are"),
		kind("hnc.x-k8s.io", "HierarchyConfiguration", "whether HNC has halted a namespace"),
		kind("helm.toolkit.fluxcd.io", "HelmRelease", "which budgets Cozystack's tenants have"),
		kind("resource.k8s.io", "DeviceClass", "which resource names mean the same"),
	}
}

// SurveyOrders is Survey with all that orders are judged by, where the cluster has
// orders.
func (c *Client) SurveyOrders(ctx context.Context, namespace string) (Survey, error) {
	c.mapper.Reset()
	kinds := surveys()
	_, err := c.mapper.RESTMapping(schema.GroupKind{Group: v1alpha1.GroupName, Kind: "GPUDevice"})
	if err != nil {
		return c.surveyAll(ctx, namespace, kinds)
	}
	s, err := c.surveyAll(ctx, namespace, append(kinds, tenancy()...))
	if err != nil {
		return s, err
	}
	_, err = c.mapper.RESTMapping(schema.GroupKind{Group: "hnc.x-k8s.io", Kind: "HierarchyConfiguration"})
	s.HNC = err == nil
	c.settings(ctx, &s)
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

// settings reads the ConfigMap with gpuctl's settings where a controller runs.
func (c *Client) settings(ctx context.Context, s *Survey) {
	mapping, err := c.mapper.RESTMapping(schema.GroupKind{Kind: "ConfigMap"})
	if err != nil {
		return
	}
	for i := range s.Docs {
		if !IsController(&s.Docs[i]) {
			continue
		}
		found, err := c.dynamic.Resource(mapping.Resource).Namespace(s.Docs[i].Meta("namespace")).Get(ctx, v1alpha1.SettingsName, metav1.GetOptions{})
		switch {
		case err == nil:
			s.Docs = append(s.Docs, c.document(found))
		case !apierrors.IsNotFound(err):
			s.Problems = append(s.Problems, diagnose.New("GPU0130", "cluster", diagnose.Values{
				"what": "ConfigMap " + v1alpha1.SettingsName, "problem": fmt.Sprintf("%v, so it is not known who is a tenant, and the default is taken", err),
				"hint": "docs/diagnose.md has a ClusterRole with the rights",
			}))
		}
	}
}
