package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// WiringName is the name of the only GPUWiring.
const WiringName = "cluster"

// GPUWiring is what gpuctl's controller says about the wiring of the
// cluster: whether VMs can use what the nodes serve, and who keeps undoing
// it. There is one, named cluster; the controller makes it.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=gpuctl
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=".status.target"
// +kubebuilder:printcolumn:name="Wired",type=string,JSONPath=`.status.conditions[?(@.type=="Wired")].status`
// +kubebuilder:printcolumn:name="Contested",type=string,JSONPath=`.status.conditions[?(@.type=="Contested")].status`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Wired")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'cluster'",message="there is one GPUWiring, named cluster"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type GPUWiring struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Status is what the controller found. It has no spec: what is wanted
	// follows from the nodes, and from the values of the chart.
	//
	// +optional
	Status GPUWiringStatus `json:"status,omitempty"`
}

// GPUWiringList is a list of GPUWirings.
//
// +kubebuilder:object:root=true
type GPUWiringList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUWiring `json:"items"`
}

// GPUWiringStatus is the state of the wiring.
type GPUWiringStatus struct {
	// Target is the object that is wired, "KubeVirt kubevirt/kubevirt".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=600
	Target string `json:"target,omitempty"`
	// LastWrite is when the controller last wrote to the target.
	//
	// +optional
	LastWrite *metav1.MicroTime `json:"lastWrite,omitempty"`
	// Reverts are the last times that somebody took away what gpuctl had
	// written, oldest first.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Reverts []Revert `json:"reverts,omitempty"`
	// Conditions are Wired and Contested.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=8
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// Revert is one time that somebody took away what gpuctl had written.
type Revert struct {
	// Time is when the controller saw it.
	Time metav1.MicroTime `json:"time"`
	// Manager is the field manager that did it. Absent: the API server has no
	// record, since the update only took fields away.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	Manager string `json:"manager,omitempty"`
	// Lost is what was taken away, "10DE:2335 as
	// nvidia.com/GH100_H200_SXM_141GB".
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Lost string `json:"lost,omitempty"`
}
