package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// GPUUsageRecord is one interval in which one consumer, a device or a pod,
// had units on one node. The intervals of a consumer do not overlap. It is
// not in the tenant's namespace, with which it would go, and names the
// tenant by UID: another namespace of the same name is another tenant.
// UsageRecordName has its name, and the label "gpuctl.dev/tenant-uid" finds
// a tenant's.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=gpuctl
// +kubebuilder:printcolumn:name="Tenant",type=string,JSONPath=".spec.tenant.name"
// +kubebuilder:printcolumn:name="Class",type=string,JSONPath=".spec.className"
// +kubebuilder:printcolumn:name="Resource",type=string,JSONPath=".spec.resourceName"
// +kubebuilder:printcolumn:name="Units",type=integer,JSONPath=".spec.units"
// +kubebuilder:printcolumn:name="Kind",type=string,JSONPath=".spec.consumer.kind",priority=1
// +kubebuilder:printcolumn:name="Consumer",type=string,JSONPath=".spec.consumer.name"
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=".spec.node"
// +kubebuilder:printcolumn:name="Start",type=string,JSONPath=".spec.start"
// +kubebuilder:printcolumn:name="End",type=string,JSONPath=".spec.end"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=".spec.reason",priority=1
// +kubebuilder:printcolumn:name="Estimated",type=boolean,JSONPath=".spec.estimated",priority=1
// +kubebuilder:validation:XValidation:rule="self.metadata.name.startsWith(self.spec.tenant.uid + '-')",message="metadata.name must begin with spec.tenant.uid and a dash"
// +kubebuilder:metadata:annotations="helm.sh/resource-policy=keep"
type GPUUsageRecord struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// Spec is what was used. Like a GPUNode's it is an observation, and has no
	// status beside it. Once it has an end it cannot be changed.
	Spec GPUUsageRecordSpec `json:"spec"`
}

// GPUUsageRecordList is a list of GPUUsageRecords.
//
// +kubebuilder:object:root=true
type GPUUsageRecordList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GPUUsageRecord `json:"items"`
}

// GPUUsageRecordSpec is what was used, by whom, where and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.className) != has(self.resourceName)",message="set exactly one of className (of a device) and resourceName (of a pod)"
// +kubebuilder:validation:XValidation:rule="has(self.end) == has(self.reason)",message="set end and reason together: a record that is open has neither"
// +kubebuilder:validation:XValidation:rule="!has(self.end) || self.start <= self.end",message="must not be before start",fieldPath=".end"
// +kubebuilder:validation:XValidation:rule="!has(oldSelf.end) || self == oldSelf",message="a record that has an end is closed and cannot be changed: write another one"
// +kubebuilder:validation:XValidation:rule="self.tenant == oldSelf.tenant && self.consumer == oldSelf.consumer && has(self.className) == has(oldSelf.className) && (!has(self.className) || self.className == oldSelf.className) && (!has(self.resourceName) || self.resourceName == oldSelf.resourceName) && self.node == oldSelf.node && self.units == oldSelf.units && self.start == oldSelf.start",message="only end, reason and estimated of an open record can be set: close it and write another one"
type GPUUsageRecordSpec struct {
	// Tenant is the namespace that pays.
	Tenant Tenant `json:"tenant"`
	// Consumer is what had the units.
	Consumer Consumer `json:"consumer"`
	// ClassName is the class of a device's units.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	ClassName string `json:"className,omitempty"`
	// ResourceName is the extended resource of a pod's units.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	ResourceName string `json:"resourceName,omitempty"`
	// Node is where the units were.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Node string `json:"node"`
	// Units is how many there were, all the time.
	//
	// +kubebuilder:validation:Minimum=1
	Units int32 `json:"units"`
	// Start is the first moment of the interval.
	Start metav1.MicroTime `json:"start"`
	// End is the first moment that is no part of it any more. Absent: it lasts.
	//
	// +optional
	End *metav1.MicroTime `json:"end,omitempty"`
	// Reason is why it ended, in one word: Released, Moved, Lost, Ended,
	// LastSeen.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[A-Z][A-Za-z0-9]*$`
	Reason string `json:"reason,omitempty"`
	// Estimated says that start or end is when the consumer was first or last
	// seen, since nobody watched when it came or went.
	//
	// +optional
	Estimated bool `json:"estimated,omitempty"`
}

// Tenant is one namespace.
type Tenant struct {
	// Name of the namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// UID of the namespace.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	UID types.UID `json:"uid"`
}

// ConsumerKind is what had units.
//
// +kubebuilder:validation:Enum=Device;Pod
type ConsumerKind string

// Kinds of consumers.
const (
	ConsumerDevice ConsumerKind = "Device" // a GPUDevice
	ConsumerPod    ConsumerKind = "Pod"    // a pod with a raw request
)

// Consumer is what had units, in the tenant's namespace.
type Consumer struct {
	// Kind is Device or Pod.
	Kind ConsumerKind `json:"kind"`
	// Name of the device or the pod.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// UID of the device or the pod.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	UID types.UID `json:"uid"`
}

// Reasons for which an interval ends.
const (
	UsageReleased = "Released" // the device was deleted
	UsageMoved    = "Moved"    // the device has other units now
	UsageLost     = "Lost"     // the node stopped to serve the device's units
	UsageEnded    = "Ended"    // the pod ended
	UsageLastSeen = "LastSeen" // the pod was gone when somebody looked again; estimated
)

// UsageRecordName returns the name of the record of an interval: the
// tenant's UID, a dash, and 24 digits that follow from the consumer's UID,
// the class or resource name and the start in microseconds. So whoever
// writes the same interval again finds it, and a pod with two resources has
// two. It is at most 61 characters with the UIDs that Kubernetes gives.
func UsageRecordName(s *GPUUsageRecordSpec) string {
	sum := sha256.Sum256([]byte(strings.Join([]string{
		string(s.Consumer.UID), s.ClassName, s.ResourceName, fmt.Sprint(s.Start.UnixMicro()),
	}, "\x00")))
	return string(s.Tenant.UID) + "-" + hex.EncodeToString(sum[:12])
}
