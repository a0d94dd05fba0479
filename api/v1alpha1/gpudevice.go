package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPUDevice is a tenant's order for units of one class. It holds them,
// whether a VM runs or not, until it is deleted. A VM names it in the
// annotation "gpuctl.dev/devices" of its template.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:categories=gpuctl
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=".spec.className"
// +kubebuilder:printcolumn:name="Count",type=integer,JSONPath=".spec.count"
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=".status.state"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".status.placement.node"
// +kubebuilder:printcolumn:name="VM",type=string,JSONPath=".status.attachment.vmiName"
// +kubebuilder:printcolumn:name="Origin",type=string,JSONPath=".status.origin.kind",priority=1
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.conditions[?(@.type=="Held")].message`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 60 && !self.metadata.name.contains('.')",message="metadata.name must have no dot and at most 60 characters, for the VM's GPUs are called by it and a number, and a dot there crashes virt-launcher: choose one like train-a"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.status) || !has(oldSelf.status.origin) || has(self.status) && has(self.status.origin) && self.status.origin == oldSelf.status.origin",message="origin is written once",fieldPath=".status.origin"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type GPUDevice struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is the order. It cannot be changed: delete the device and order
	// another one.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="an order cannot be changed: delete the device and create another one"
	Spec GPUDeviceSpec `json:"spec"`
	// Status is what became of the order. Only gpuctl writes it.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.state) || self.state == (!has(self.placement) ? 'Pending' : has(self.placement.lostSince) ? 'Lost' : !has(self.attachment) ? 'Held' : has(self.attachment.vmiUID) ? 'Attached' : has(self.bindRequest) && self.bindRequest.requestID == self.attachment.requestID && has(self.bindRequest.answer) && has(self.bindRequest.answer.node) && self.bindRequest.answer.node == self.placement.node ? 'Bound' : 'Held')",message="state is not what placement, attachment and bindRequest say",fieldPath=".state"
	Status GPUDeviceStatus `json:"status,omitempty"`
}

// GPUDeviceList is a list of GPUDevices.
//
// +kubebuilder:object:root=true
type GPUDeviceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUDevice `json:"items"`
}

// GPUDeviceSpec is an order.
type GPUDeviceSpec struct {
	// ClassName is the name of the GPUClass: kubectl get gpuclasses.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$')",message="is not the name of a GPUClass: write one that kubectl get gpuclasses lists"
	ClassName string `json:"className"`
	// Count is how many units are ordered, 1 to 64 and to the maxCount of the
	// class. They are on one node, together with those of all other devices of
	// the same VM.
	//
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Count int32 `json:"count,omitempty"`
}

// GPUDeviceStatus is what became of an order. The binder writes origin of an
// order, placement and answers; webhooks write origin of a template device,
// attachment and bind request. DeviceState has the table of what they say
// together.
type GPUDeviceStatus struct {
	// State is one word for the fields below: Pending, Held, Bound, Attached or
	// Lost.
	//
	// +optional
	State DeviceState `json:"state,omitempty"`
	// Origin says who made the device. It is written once. Absent: nobody has
	// looked at it yet.
	//
	// +optional
	Origin *Origin `json:"origin,omitempty"`
	// Placement is where the units are. Absent: the device has none.
	//
	// +optional
	Placement *Placement `json:"placement,omitempty"`
	// Attachment is the VMI for which the device is taken. Absent: it is free to
	// be used.
	//
	// +optional
	Attachment *Attachment `json:"attachment,omitempty"`
	// BindRequest is the last question of a starting VM, and its answer.
	//
	// +optional
	BindRequest *BindRequest `json:"bindRequest,omitempty"`
	// Conditions are Held and Attached. The list is atomic, since each start of
	// a VM writes it and the API server takes longer for a map.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=4
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// OriginKind says who made a device.
//
// +kubebuilder:validation:Enum=Order;Template
type OriginKind string

// Kinds of origins.
const (
	OriginOrder    OriginKind = "Order"    // a tenant; it stays until it is deleted
	OriginTemplate OriginKind = "Template" // gpuctl, from a template on a VM or a VMI; it goes with their need
)

// Origin says who made a device, and for whom. It counts instead of a label,
// which a tenant can write.
//
// +kubebuilder:validation:XValidation:rule="!has(self.vm) || self.kind == 'Template'",message="only a template device has a vm, an order has none"
type Origin struct {
	// Kind is Order or Template.
	Kind OriginKind `json:"kind"`
	// VM is the VirtualMachine that has the template, in the device's namespace.
	// Absent for an order, and for a template on a VMI that has no VM: such a
	// device goes with its VMI.
	//
	// +optional
	VM *VMReference `json:"vm,omitempty"`
}

// VMReference is one VirtualMachine, which another one of the same name is
// not.
type VMReference struct {
	// Name of the VirtualMachine.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the VirtualMachine.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	UID types.UID `json:"uid"`
}

// Placement is where the units of a device are: all on one node.
type Placement struct {
	// Node is the name of the node.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// ResourceName is the extended resource that is held: that of the class when
	// the device was placed. The class may be gone.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=308
	ResourceName string `json:"resourceName"`
	// Units is how many are held.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Units int32 `json:"units"`
	// Since is when they were first held on this node.
	Since metav1.MicroTime `json:"since"`
	// LostSince is when the node stopped to serve them. Then the device holds
	// nothing; units that return heal it. Absent: they are there.
	//
	// +optional
	LostSince *metav1.MicroTime `json:"lostSince,omitempty"`
}

// Attachment is the VMI for which a device is taken. All devices of a set
// have the same.
//
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.vmiUID) || self.requestID != oldSelf.requestID || has(self.vmiUID) && self.vmiUID == oldSelf.vmiUID",message="a VMI has claimed this attachment: vmiUID stays until another request takes the device over",fieldPath=".vmiUID"
type Attachment struct {
	// VMIName is the name of the VMI, which is that of its VM if it has one.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	VMIName string `json:"vmiName"`
	// VMIUID is the UID of the VMI. Absent: the VMI is being created and has
	// none. It is written once for a request: nobody else gets the device while
	// this attachment lasts.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	VMIUID types.UID `json:"vmiUID,omitempty"`
	// VMUID is the UID of the VirtualMachine that the VMI is made from: by it
	// the VM's next VMI takes the device over. Absent: the VMI has none.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	VMUID types.UID `json:"vmUID,omitempty"`
	// RequestID is the random id that the webhook wrote into the VMI, too: 128
	// bits as 32 lower-case hexadecimal digits.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{32}$`
	RequestID string `json:"requestID"`
	// Since is when the device was taken.
	Since metav1.MicroTime `json:"since"`
}

// BindRequest asks the binder for a node for a set.
type BindRequest struct {
	// RequestID is the attachment's.
	//
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[0-9a-f]{32}$`
	RequestID string `json:"requestID"`
	// RequestedAt is when the webhook asked.
	RequestedAt metav1.MicroTime `json:"requestedAt"`
	// Devices is how many devices the set has: the binder waits until as many
	// have asked by this id.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=64
	Devices int32 `json:"devices"`
	// Launcher is what the VM's launcher needs of a node beside the GPUs: a
	// PodSpec as JSON, cut down to what a scheduler looks at. It is on the device
	// with the lowest UID only. Absent there: any node will do.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=16384
	Launcher string `json:"launcher,omitempty"`
	// Answer is the binder's: the same node on all devices of the set, or a
	// refusal on the one with the lowest UID only. Absent: there is none yet.
	//
	// +optional
	Answer *BindAnswer `json:"answer,omitempty"`
}

// BindAnswer is a node or a refusal.
//
// +kubebuilder:validation:XValidation:rule="has(self.node) != has(self.refusal)",message="an answer is either a node or a refusal"
type BindAnswer struct {
	// AnsweredAt is when the binder decided.
	AnsweredAt metav1.MicroTime `json:"answeredAt"`
	// Node is where the VM starts.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node,omitempty"`
	// Refusal says why it cannot start now.
	//
	// +optional
	Refusal *Refusal `json:"refusal,omitempty"`
}

// Refusal is why something is refused, in words for the tenant.
type Refusal struct {
	// Code is that of a finding, "GPU0501": gpuctl explain has more on it.
	//
	// +kubebuilder:validation:Pattern=`^GPU[0-9]{4}$`
	Code string `json:"code"`
	// Message is what the tenant reads.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}
