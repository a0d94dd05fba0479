// Package dra places sets by the allocator of Kubernetes' dynamic resource
// allocation, to compare it with alloc.
//
// Both get the same nodes and the same free GPUs, and DRA the nodes in alloc's
// order, one Allocate a node until one succeeds, which is how the scheduler asks.
// Features and caches are those of the scheduler of 1.37 as it comes. An allocator
// is made once for many sets, although the scheduler makes one for each pod.
//
// DRA does more for it: it says which GPUs of the node, judges each by CEL
// selectors, honours device taints, and could match attributes, and partition and
// share devices. alloc counts units, since a device plugin chooses which; it ranks
// nodes itself, and can move reservations.
package dra

import (
	"context"
	"fmt"
	"iter"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const (
	driver   = "gpu.nvidia.com"
	class    = "gpu.nvidia.com"
	selector = `device.driver == "gpu.nvidia.com" && device.attributes["gpu.nvidia.com"].type == "gpu"`
)

// Node is a node's GPUs: how many, and how many of them are taken.
type Node struct {
	Name         string
	Units, Taken int
}

// features are those that the scheduler of 1.37 has on unless told.
var features = structured.Features{
	AdminAccess:             true,
	ConsumableCapacity:      true,
	DeviceBindingAndStatus:  true,
	DeviceTaints:            true,
	FractionalCapacityRange: true,
	PartitionableDevices:    true,
	PrioritizedList:         true,
}

// Allocator allocates claims for GPUs. It does not record what it allocates.
type Allocator struct {
	allocator structured.Allocator
	nodes     map[string]*corev1.Node
	state     structured.AllocatedState
	slices    []*resourceapi.ResourceSlice
	classes   classes
	cel       *cel.Cache
}

// New makes an allocator for the nodes, each with a slice of its GPUs.
func New(ctx context.Context, nodes []Node) (*Allocator, error) {
	a := &Allocator{
		nodes: make(map[string]*corev1.Node, len(nodes)),
		state: structured.AllocatedState{
			AllocatedDevices:         sets.New[structured.DeviceID](),
			AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
			AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
		},
		classes: newClasses(),
		cel:     cel.NewCache(10, cel.Features{EnableConsumableCapacity: true}),
	}
	for _, n := range nodes {
		a.nodes[n.Name] = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: n.Name}}
		a.slices = append(a.slices, slice(n))
		for i := range n.Taken {
			a.state.AllocatedDevices.Insert(structured.MakeDeviceID(driver, n.Name, device(i)))
		}
	}
	err := a.Renew(ctx)
	return a, err
}

// Renew prepares the same state anew, as the scheduler does for each pod.
func (a *Allocator) Renew(ctx context.Context) (err error) {
	a.allocator, err = structured.NewAllocator(ctx, features, a.state, a.classes, a.slices, a.cel)
	return err
}

func device(i int) string { return fmt.Sprint("gpu-", i) }

func slice(n Node) *resourceapi.ResourceSlice {
	s := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name + "-" + driver},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: driver, NodeName: &n.Name,
			Pool: resourceapi.ResourcePool{Name: n.Name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range n.Units {
		text := func(v string) resourceapi.DeviceAttribute { return resourceapi.DeviceAttribute{StringValue: &v} }
		s.Spec.Devices = append(s.Spec.Devices, resourceapi.Device{
			Name:       device(i),
			Attributes: map[resourceapi.QualifiedName]resourceapi.DeviceAttribute{"type": text("gpu"), "productName": text("NVIDIA H200")},
		})
	}
	return s
}

// classes has the one class there is.
type classes struct{ one *resourceapi.DeviceClass }

func newClasses() classes {
	return classes{&resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{
			{CEL: &resourceapi.CELDeviceSelector{Expression: selector}},
		}},
	}}
}

// List returns all classes.
func (c classes) List() ([]*resourceapi.DeviceClass, error) {
	return []*resourceapi.DeviceClass{c.one}, nil
}

// Get returns the class, whatever the name.
func (c classes) Get(string) (*resourceapi.DeviceClass, error) { return c.one, nil }

// Claim returns a claim for exactly so many GPUs.
func Claim(units int64) *resourceapi.ResourceClaim {
	return &resourceapi.ResourceClaim{
		ObjectMeta: metav1.ObjectMeta{Name: "set", Namespace: "tenant", UID: "set"},
		Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{
			Name: "gpus",
			Exactly: &resourceapi.ExactDeviceRequest{
				DeviceClassName: class, AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: units,
			},
		}}}},
	}
}

// Place returns the first of the nodes on which the claim can be allocated, and
// how many it tried; "" where there is none.
func (a *Allocator) Place(ctx context.Context, nodes iter.Seq[string], claim *resourceapi.ResourceClaim) (node string, tried int, err error) {
	claims := []*resourceapi.ResourceClaim{claim}
	for name := range nodes {
		tried++
		results, err := a.allocator.Allocate(ctx, a.nodes[name], claims)
		if err != nil {
			return "", tried, fmt.Errorf("allocate on %s: %w", name, err)
		}
		if len(results) > 0 {
			return name, tried, nil
		}
	}
	return "", tried, nil
}
