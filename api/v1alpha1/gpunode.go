package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUNode is the PCI inventory of one node, as far as GPUs go. Its name is
// the node's. Only that node's agent writes it, and only when what it says
// changes: that the agent lives is told by a Lease.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=gpuctl
// +kubebuilder:printcolumn:name="GPUs",type=integer,JSONPath=".spec.gpus"
// +kubebuilder:printcolumn:name="VFIO",type=integer,JSONPath=".spec.onVFIO",description="GPUs on a driver that can hand them to a VM"
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=".spec.agentVersion",priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type GPUNode struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the agent saw. Like that of a CSINode or a ResourceSlice it
	// is an observation: nobody asks anything of the node with it.
	Spec GPUNodeSpec `json:"spec"`
}

// GPUNodeList is a list of GPUNodes.
//
// +kubebuilder:object:root=true
type GPUNodeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUNode `json:"items"`
}

// GPUNodeSpec is one node's inventory.
type GPUNodeSpec struct {
	// AgentVersion is the release of gpuctl that reported the inventory.
	//
	// +kubebuilder:validation:MaxLength=128
	AgentVersion string `json:"agentVersion"`
	// GPUs is the number of physical NVIDIA GPUs.
	//
	// +kubebuilder:validation:Minimum=0
	GPUs int32 `json:"gpus"`
	// OnVFIO is how many of them are on a driver that can hand them to a VM.
	//
	// +kubebuilder:validation:Minimum=0
	OnVFIO int32 `json:"onVFIO"`
	// IOMMU says whether the kernel drives any IOMMU. Absent: not known.
	//
	// +optional
	IOMMU *bool `json:"iommu,omitempty"`
	// IOMMUFD says whether the kernel offers /dev/iommu. Absent: not known.
	//
	// +optional
	IOMMUFD *bool `json:"iommufd,omitempty"`
	// Functions are NVIDIA's PCI functions, and those of other vendors in the
	// IOMMU groups of NVIDIA's, in the order of their addresses.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Functions []Function `json:"functions,omitempty"`
	// Mdevs are the mediated devices that exist, in the order of their UUIDs.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4096
	Mdevs []Mdev `json:"mdevs,omitempty"`
	// Warnings are what the agent could not read.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Warnings []string `json:"warnings,omitempty"`
}

// Function is one PCI function.
type Function struct {
	// Address is domain:bus:device.function, "0000:1b:00.0".
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`
	Address string `json:"address"`
	// ID is vendor:device, "10de:2335".
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}:[0-9a-f]{4}$`
	ID string `json:"id"`
	// Class is base class and subclass, "0302".
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4}$`
	Class string `json:"class"`
	// Role is what one of NVIDIA's functions is: gpu, vf, nvswitch or sibling.
	//
	// +optional
	// +kubebuilder:validation:Enum=gpu;vf;nvswitch;sibling
	Role string `json:"role,omitempty"`
	// Driver is the kernel driver that is bound to the function. Absent: none.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Driver string `json:"driver,omitempty"`
	// DriverOverride is the only driver that may bind to the function. Absent:
	// any.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DriverOverride string `json:"driverOverride,omitempty"`
	// IOMMUGroup is the number of the group, or "none". Absent: not known.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(none|[0-9]{1,10})$`
	IOMMUGroup string `json:"iommuGroup,omitempty"`
	// NUMANode is the node of memory that is near. Absent: not known.
	//
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
	// PhysFn is the address of the physical function of a virtual one.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`
	PhysFn string `json:"physfn,omitempty"`
	// TotalVFs is how many virtual functions a physical one can have.
	//
	// +optional
	TotalVFs int32 `json:"totalVFs,omitempty"`
	// NumVFs is how many it has.
	//
	// +optional
	NumVFs int32 `json:"numVFs,omitempty"`
	// MdevTypes are the mediated device types that the function offers.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	MdevTypes []MdevType `json:"mdevTypes,omitempty"`
	// VGPUTypes are the vGPU types that a virtual function could carry, where
	// NVIDIA's driver has a vendor interface for that.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	VGPUTypes []VGPUType `json:"vgpuTypes,omitempty"`
	// CurrentVGPU is the vGPU type that is set on a virtual function.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	CurrentVGPU string `json:"currentVGPU,omitempty"`
	// OffBus says that the function does not answer any more.
	//
	// +optional
	OffBus bool `json:"offBus,omitempty"`
}

// MdevType is one type of mediated device that a function offers.
type MdevType struct {
	// ID is the kernel's name, "nvidia-592".
	//
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`
	// Name is NVIDIA's name, "NVIDIA A10-12Q".
	//
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
	// Available is how many more instances can be created.
	Available int32 `json:"available"`
}

// VGPUType is one vGPU type that a virtual function could carry.
type VGPUType struct {
	// ID is the number by which the driver knows the type.
	ID int32 `json:"id"`
	// Name is NVIDIA's name, "NVIDIA L40S-48Q".
	//
	// +kubebuilder:validation:MaxLength=128
	Name string `json:"name"`
}

// Mdev is one mediated device.
type Mdev struct {
	// UUID names the device.
	//
	// +kubebuilder:validation:MaxLength=64
	UUID string `json:"uuid"`
	// TypeID is the kernel's name of its type, "nvidia-592".
	//
	// +kubebuilder:validation:MaxLength=128
	TypeID string `json:"typeID"`
	// TypeName is NVIDIA's name of its type. Absent: not known.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	TypeName string `json:"typeName,omitempty"`
	// Parent is the address of the function that it is a part of.
	//
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`
	Parent string `json:"parent"`
	// IOMMUGroup is the number of the group, or "none". Absent: not known.
	//
	// +optional
	// +kubebuilder:validation:Pattern=`^(none|[0-9]{1,10})$`
	IOMMUGroup string `json:"iommuGroup,omitempty"`
	// NUMANode is the node of memory that is near. Absent: not known.
	//
	// +optional
	NUMANode *int32 `json:"numaNode,omitempty"`
}
