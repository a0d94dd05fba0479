package cluster

import (
	"maps"
	"runtime"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Node describes a node: an object that looks as if a kubelet, a virt-handler
// and a device plugin ran there.
type Node struct {
	Name        string
	Labels      map[string]string // besides those that kubelet and virt-handler set
	Annotations map[string]string
	Taints      []corev1.Taint
	// Resources are capacity and allocatable of extended resources, such as
	// "nvidia.com/GA102GL_A10": 2, and of "cpu" (cores; 16 unless given) and
	// "memory" (bytes; 64 GiB unless given).
	Resources map[corev1.ResourceName]int64
	// Root is the folder that the processes of RunImage are to take for the
	// node's root: they find it in GPUCTL_HOST_ROOT. hostPath volumes are there.
	Root string
}

// heartbeatAnnotation is how virt-handler says that it lives.
const heartbeatAnnotation = "kubevirt.io/heartbeat"

// object returns the node without its status.
func (n Node) object() *corev1.Node {
	machine := map[string]string{"amd64": "q35", "arm64": "virt", "s390x": "s390-ccw-virtio"}[runtime.GOARCH]
	labels := map[string]string{
		corev1.LabelArchStable: runtime.GOARCH,
		corev1.LabelOSStable:   "linux",
		corev1.LabelHostname:   n.Name,
		// Those of virt-handler by which launcher pods select.
		"kubevirt.io/schedulable":                  "true",
		"machine-type.node.kubevirt.io/" + machine: "true",
	}
	maps.Copy(labels, n.Labels)
	annotations := map[string]string{heartbeatAnnotation: now()}
	maps.Copy(annotations, n.Annotations)
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: n.Name, Labels: labels, Annotations: annotations},
		Spec:       corev1.NodeSpec{Taints: n.Taints},
	}
}

// status returns what a kubelet of this version would report that serves its
// API on a port.
func (n Node) status(version string, port int) corev1.NodeStatus {
	list := corev1.ResourceList{
		corev1.ResourceCPU:              resource.MustParse("16"),
		corev1.ResourceMemory:           resource.MustParse("64Gi"),
		corev1.ResourceEphemeralStorage: resource.MustParse("100Gi"),
		corev1.ResourcePods:             resource.MustParse("110"),
		"devices.kubevirt.io/kvm":       resource.MustParse("1k"),
		"devices.kubevirt.io/tun":       resource.MustParse("1k"),
		"devices.kubevirt.io/vhost-net": resource.MustParse("1k"),
	}
	for name, amount := range n.Resources {
		list[name] = *resource.NewQuantity(amount, resource.DecimalSI)
	}
	return corev1.NodeStatus{
		Capacity: list, Allocatable: list,
		Conditions: []corev1.NodeCondition{readyCondition()},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: "127.0.0.1"},
			{Type: corev1.NodeHostName, Address: n.Name},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(port)}},
		NodeInfo:        corev1.NodeSystemInfo{Architecture: runtime.GOARCH, OperatingSystem: "linux", KubeletVersion: version},
	}
}

func readyCondition() corev1.NodeCondition {
	return corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message: "kubelet is posting ready status", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}
}

func now() string { return time.Now().UTC().Format(time.RFC3339) }
