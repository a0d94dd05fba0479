package books

import (
	"fmt"
	"time"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

const (
	h200 gpu.ResourceName = "nvidia.com/GH100_H200_SXM_141GB"
	l40s gpu.ResourceName = "nvidia.com/AD102GL_L40S"
)

// tree is acme with two tenants below it, and what acme may have of H200s; below 0
// there is no budget.
func tree(units int64) *tenant.Tree {
	var quotas []tenant.Quota
	if units >= 0 {
		quotas = append(quotas, tenant.Quota{Namespace: "acme", Name: "gpus", Hard: map[string]string{"requests." + string(h200): fmt.Sprint(units)}})
	}
	return tenant.Build([]tenant.Namespace{
		{Name: "acme", Labels: map[string]string{tenant.EntitlementPrefix + "vgpu": "true"}},
		{Name: "acme-dev", Labels: map[string]string{tenant.ParentLabel: "acme"}},
		{Name: "acme-ops", Labels: map[string]string{tenant.ParentLabel: "acme"}},
		{Name: "mallory"},
		{Name: "kube-system"},
	}, tenant.Labels(quotas, false), func(n tenant.Namespace) bool { return n.Name != "kube-system" })
}

// node serves H200s.
func node(name string, units int64) usage.Node {
	return usage.Node{Facts: gpu.Node{Name: name, Allocatable: map[gpu.ResourceName]int64{h200: units, "cpu": 8}}}
}

// device is an order of acme-dev's that has no node. The later the letter, the younger.
func device(uid string, units int64) Device {
	return Device{
		Device:  usage.Device{UID: uid, Namespace: "acme-dev", Name: "order-" + uid, Class: "h200", Units: units},
		Ordered: time.Unix(int64(uid[0]), 0),
	}
}

func on(node string, d Device) Device {
	d.Node, d.Resource = node, h200
	return d
}

func lost(d Device) Device { d.Lost = true; return d }

func attached(vmi string, d Device) Device {
	d.VMI, d.State = vmi, alloc.Attached
	return d
}

func pod(uid, node string, units int64) usage.Pod {
	return usage.Pod{UID: uid, Namespace: "acme-dev", Name: uid, Node: node, Containers: []usage.Requests{{h200: units}}}
}

// filled are books of two nodes with 8 H200s each, and a class of them.
func filled(budget int64, devices ...Device) *Books {
	b := New()
	b.SetTree(tree(budget))
	b.PutClass(Class{Name: "h200", Resource: h200, MaxCount: 8})
	b.PutNode(node("n1", 8))
	b.PutNode(node("n2", 8))
	for _, d := range devices {
		b.PutDevice(d)
	}
	return b
}
