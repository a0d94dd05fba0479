package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GPUClass is what the hoster offers under a name: a resource name, and who
// may order how much of it. Tenants order by the class's name, so what
// stands behind it can be called as it likes.
//
// A class may be deleted at any time: new orders of it are refused, and
// devices keep the units that they hold.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=gpuctl
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=".spec.resourceName"
// +kubebuilder:printcolumn:name="Total",type=integer,JSONPath=".status.units.total"
// +kubebuilder:printcolumn:name="Free",type=integer,JSONPath=".status.units.free"
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=".status.units.held"
// +kubebuilder:printcolumn:name="Attached",type=integer,JSONPath=".status.units.attached"
// +kubebuilder:printcolumn:name="Lost",type=integer,JSONPath=".status.units.lost",priority=1
// +kubebuilder:printcolumn:name="Max",type=integer,JSONPath=".spec.maxCount",description="units that one order may have",priority=1
// +kubebuilder:printcolumn:name="Entitlement",type=string,JSONPath=".spec.entitlement",priority=1
// +kubebuilder:printcolumn:name="Available",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Available")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63 && !self.metadata.name.contains('.')",message="metadata.name must have no dot and at most 63 characters, for it is a part of budget keys and of names of devices: choose one like h200"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type GPUClass struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what the hoster offers.
	Spec GPUClassSpec `json:"spec"`
	// Status is what there is of it. Only gpuctl writes it.
	//
	// +optional
	Status GPUClassStatus `json:"status,omitempty"`
}

// GPUClassList is a list of GPUClasses.
//
// +kubebuilder:object:root=true
type GPUClassList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUClass `json:"items"`
}

// GPUClassSpec is what the hoster offers.
type GPUClassSpec struct {
	// ResourceName is the extended resource that one unit of the class is, as
	// nodes serve it and as the KubeVirt CR permits it:
	// "nvidia.com/GH100_H200_SXM_141GB". It cannot be changed, since devices
	// hold units of it.
	//
	// The part before the slash has at most 244 characters, for ResourceQuotas
	// write it behind "requests.".
	//
	// +kubebuilder:validation:MaxLength=308
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?([.][a-z0-9]([-a-z0-9]*[a-z0-9])?)*/[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 244",message="is not the name of an extended resource: write domain/name as in the allocatable of a node, nvidia.com/GH100_H200_SXM_141GB"
	// +kubebuilder:validation:XValidation:rule="!self.contains('kubernetes.io/') && !self.startsWith('requests.')",message="is reserved by Kubernetes: give the name that a device plugin registers"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed, since devices hold units of it: create another class"
	ResourceName string `json:"resourceName"`
	// DisplayName is what people read, "NVIDIA H200 141 GB". Absent: the class's
	// name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	DisplayName string `json:"displayName,omitempty"`
	// MaxCount is how many units one device of the class may have, 1 to 64. The
	// default is 8, as many GPUs as most large servers have. A lower one holds
	// for new orders only.
	//
	// +optional
	// +kubebuilder:default=8
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	MaxCount int32 `json:"maxCount,omitempty"`
	// Entitlement names the right that a tenant needs to order: the label
	// "gpuctl.dev/entitlement.NAME" with the value "true", on the tenant's
	// namespace or one above it. Absent: everybody may order, but where the
	// class is of vGPUs: NVIDIA licenses them, so without an entitlement nobody
	// may.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=51
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="must have lower-case letters, digits and inner dashes only, for it is a part of a label's key: write one like vgpu-workstation"
	Entitlement string `json:"entitlement,omitempty"`
	// NodeSelector are the labels of the nodes whose units the class offers.
	// Absent: all nodes that serve the resource. Another one moves no device
	// that a VM uses.
	//
	// +optional
	// +mapType=atomic
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.all(k, k.matches('^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$') && self[k].matches('^([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?$'))",message="has a key or a value that no label can have, so no node would match: copy them from kubectl get nodes --show-labels"
	NodeSelector map[string]LabelValue `json:"nodeSelector,omitempty"`
}

// LabelValue is the value of a label.
//
// +kubebuilder:validation:MaxLength=63
type LabelValue string

// GPUClassStatus is what there is of a class.
type GPUClassStatus struct {
	// ObservedGeneration is the generation of the class that the rest is about.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// Units counts the units of the class. Absent: they are not counted yet.
	//
	// +optional
	Units *ClassUnits `json:"units,omitempty"`
	// Conditions are Permitted and Available.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ClassUnits counts units. Where several classes or raw requests share the
// resource, total is more than free, held and attached together.
type ClassUnits struct {
	// Total is how many the class's nodes serve.
	//
	// +kubebuilder:validation:Minimum=0
	Total int32 `json:"total"`
	// Free is how many of them nobody holds or uses.
	//
	// +kubebuilder:validation:Minimum=0
	Free int32 `json:"free"`
	// Held is how many devices of this class hold without a VMI that uses them:
	// those that are bound for a VM that starts are among them.
	//
	// +kubebuilder:validation:Minimum=0
	Held int32 `json:"held"`
	// Attached is how many VMIs use by devices of this class.
	//
	// +kubebuilder:validation:Minimum=0
	Attached int32 `json:"attached"`
	// Lost is how many devices of this class have lost. They are not a part of
	// total.
	//
	// +kubebuilder:validation:Minimum=0
	Lost int32 `json:"lost"`
}
