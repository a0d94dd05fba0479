package api

import (
	"strings"
	"testing"
)

// class returns a GPUClass in YAML.
func class(name, spec string) string {
	return "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUClass\nmetadata: {name: " + name + "}\nspec: " + spec
}

func TestClass(t *testing.T) {
	c := served(t)
	const h200 = "resourceName: nvidia.com/GH100_H200_SXM_141GB"
	const noResource = "is not the name of an extended resource: write domain/name"
	const reserved = "is reserved by Kubernetes"
	for name, tc := range map[string]attempt{
		"least": {object: class("h200", "{"+h200+"}"), spec: `{"resourceName":"nvidia.com/GH100_H200_SXM_141GB","maxCount":8}`},
		"all of it": {
			object: class("a10-12q", "{resourceName: nvidia.com/NVIDIA_A10-12Q, displayName: NVIDIA A10 12Q, maxCount: 64, entitlement: vgpu-workstation, nodeSelector: {topology.kubernetes.io/zone: a, empty: ''}}"),
			spec:   `{"resourceName":"nvidia.com/NVIDIA_A10-12Q","displayName":"NVIDIA A10 12Q","maxCount":64,"entitlement":"vgpu-workstation","nodeSelector":{"topology.kubernetes.io/zone":"a","empty":""}}`,
		},
		"longest": {
			object: class(strings.Repeat("c", 63), "{resourceName: "+longName(244)+", entitlement: "+strings.Repeat("e", 51)+"}"),
			spec:   `{"resourceName":"` + longName(244) + `","maxCount":8,"entitlement":"` + strings.Repeat("e", 51) + `"}`,
		},

		"no spec":                    {object: "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUClass\nmetadata: {name: h200}", errors: []string{"spec: Required value"}},
		"no resource":                {object: class("h200", "{maxCount: 1}"), errors: []string{"spec.resourceName: Required value"}},
		"name with a dot":            {object: class("h200.big", "{"+h200+"}"), errors: []string{"metadata.name must have no dot", "choose one like h200"}},
		"name too long":              {object: class(strings.Repeat("c", 64), "{"+h200+"}"), errors: []string{"metadata.name must", "at most 63 characters"}},
		"resource without domain":    {object: class("h200", "{resourceName: GH100}"), errors: []string{"spec.resourceName", noResource}},
		"resource with a space":      {object: class("h200", "{resourceName: 'nvidia.com/GH100 '}"), errors: []string{"spec.resourceName", noResource}},
		"resource with two slashes":  {object: class("h200", "{resourceName: nvidia.com/GH100/2}"), errors: []string{"spec.resourceName", noResource}},
		"resource in upper case":     {object: class("h200", "{resourceName: NVIDIA.com/GH100}"), errors: []string{"spec.resourceName", noResource}},
		"resource of 64 characters":  {object: class("h200", "{resourceName: nvidia.com/"+strings.Repeat("x", 64)+"}"), errors: []string{"spec.resourceName", noResource}},
		"domain of 245 characters":   {object: class("h200", "{resourceName: "+longName(245)[:300]+"}"), errors: []string{"spec.resourceName", noResource}},
		"resource empty":             {object: class("h200", "{resourceName: ''}"), errors: []string{"spec.resourceName", noResource}},
		"resource of a quota":        {object: class("h200", "{resourceName: requests.nvidia.com/GH100}"), errors: []string{"spec.resourceName", reserved, "give the name that a device plugin registers"}},
		"resource of Kubernetes":     {object: class("h200", "{resourceName: deviceclass.resource.kubernetes.io/gpu}"), errors: []string{"spec.resourceName", reserved}},
		"max count 0":                {object: class("h200", "{"+h200+", maxCount: 0}"), errors: []string{"spec.maxCount", "greater than or equal to 1"}},
		"max count 65":               {object: class("h200", "{"+h200+", maxCount: 65}"), errors: []string{"spec.maxCount", "less than or equal to 64"}},
		"entitlement with a dot":     {object: class("h200", "{"+h200+", entitlement: a.b}"), errors: []string{"spec.entitlement", "write one like vgpu-workstation"}},
		"entitlement in upper case":  {object: class("h200", "{"+h200+", entitlement: Gold}"), errors: []string{"spec.entitlement", "lower-case"}},
		"entitlement empty":          {object: class("h200", "{"+h200+", entitlement: ''}"), errors: []string{"spec.entitlement", "lower-case"}},
		"entitlement too long":       {object: class("h200", "{"+h200+", entitlement: "+strings.Repeat("e", 52)+"}"), errors: []string{"spec.entitlement", "may not be more than 51"}},
		"selector without labels":    {object: class("h200", "{"+h200+", nodeSelector: {}}"), errors: []string{"spec.nodeSelector", "at least 1"}},
		"selector with a bad key":    {object: class("h200", "{"+h200+", nodeSelector: {'zone/': a}}"), errors: []string{"spec.nodeSelector", "no label can have", "kubectl get nodes --show-labels"}},
		"selector with a bad value":  {object: class("h200", "{"+h200+", nodeSelector: {zone: a b}}"), errors: []string{"spec.nodeSelector", "no label can have"}},
		"selector with a long value": {object: class("h200", "{"+h200+", nodeSelector: {zone: "+strings.Repeat("z", 64)+"}}"), errors: []string{"spec.nodeSelector", "may not be more than 63"}},
		"display name too long":      {object: class("h200", "{"+h200+", displayName: "+strings.Repeat("n", 129)+"}"), errors: []string{"spec.displayName", "may not be more than 128"}},
	} {
		t.Run(name, func(t *testing.T) { tc.run(t, c) })
	}
}

// longName returns a resource name whose domain has that many characters, and whose
// other part is as long as can be.
func longName(domain int) string {
	d := strings.Repeat(strings.Repeat("d", 49)+".", 10)[:domain-1] + "d"
	return d + "/" + strings.Repeat("N", 63)
}

func TestClassChanges(t *testing.T) {
	c := served(t)
	u := create(t, c, class("changes", "{resourceName: nvidia.com/GH100, entitlement: gold}"))
	changes(t, c, u, map[string]change{
		"another resource":  {patch: `{"spec":{"resourceName":"nvidia.com/GH200"}}`, refused: []string{"spec.resourceName", "cannot be changed", "create another class"}},
		"no resource":       {patch: `{"spec":{"resourceName":null}}`, refused: []string{"spec.resourceName: Required"}},
		"no spec":           {patch: `{"spec":null}`, refused: []string{"spec: Required"}},
		"other terms":       {patch: `{"spec":{"maxCount":2,"entitlement":null,"displayName":"new","nodeSelector":{"zone":"a"}}}`},
		"the same resource": {patch: `{"spec":{"resourceName":"nvidia.com/GH100"}}`},
	})
	changes(t, c, u, map[string]change{
		"status":         {patch: `{"status":{"observedGeneration":1,"units":{"total":8,"free":4,"held":2,"attached":2,"lost":0}}}`},
		"negative units": {patch: `{"status":{"units":{"total":8,"free":-1,"held":2,"attached":2,"lost":0}}}`, refused: []string{"status.units.free", "greater than or equal to 0"}},
		"some units":     {patch: `{"status":{"units":{"total":8}}}`, refused: []string{"status.units.free: Required"}},
	}, "status")
	statusOnlyBySubresource(t, c, u, `{"status":{"observedGeneration":7}}`)
}
