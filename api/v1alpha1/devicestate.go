package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// DeviceState is one word for where a device is in its life:
//
//	state     placement       attachment       bindRequest     Held             Attached        means
//	Pending   –               – or any         –, unanswered   False (binder's) False Unused    ordered, not placed
//	                                           or refused                       or Starting
//	Held      node            –                –               True  Reserved   False Unused    reserved; the binder may move it
//	                          no VMI UID       unanswered      True  Reserved   False Starting  a VM asks for it
//	Bound     node            no VMI UID       answer = node   True  Reserved   False Starting  placed for a VM that starts
//	Attached  node            VMI UID          any             True  Reserved   True  InUse     a VMI uses it
//	Lost      node, lostSince any              any             False Lost       any of the three  its units are gone from the node
//
// A device holds units, and counts for the node's capacity, if and only if Held is
// True. A VMI uses it, and it covers its launcher's units, if and only if it has a
// placement and a VMI's UID: that is Attached, or Lost under a running VM.
//
// Ways: Pending → Held → Bound → Attached → Held (the VM stopped), and back from Bound
// and Held when the start is refused or times out. Attached → Held → Bound → Attached in
// one swap each when the same VM's next VMI takes over. Any with a placement → Lost, and
// back to what it was when the units return; from Lost to Pending when a device without
// a VMI is to be placed anew.
//
// +kubebuilder:validation:Enum=Pending;Held;Bound;Attached;Lost
type DeviceState string

// States of a device.
const (
	DevicePending  DeviceState = "Pending"  // ordered, not placed
	DeviceHeld     DeviceState = "Held"     // reserved
	DeviceBound    DeviceState = "Bound"    // placed for a starting VM
	DeviceAttached DeviceState = "Attached" // in use by a VMI
	DeviceLost     DeviceState = "Lost"     // its units are gone from the node
)

// Derive returns the state that placement, attachment and bind request say, whatever
// State says. The API server refuses a status with another one.
func (s *GPUDeviceStatus) Derive() DeviceState {
	switch {
	case s.Placement == nil:
		return DevicePending
	case s.Placement.LostSince != nil:
		return DeviceLost
	case s.Attachment == nil:
		return DeviceHeld
	case s.Attachment.VMIUID != "":
		return DeviceAttached
	case s.answered():
		return DeviceBound
	}
	return DeviceHeld
}

// answered reports that the binder has given the attachment the node of the placement.
func (s *GPUDeviceStatus) answered() bool {
	r := s.BindRequest
	return r != nil && r.RequestID == s.Attachment.RequestID && r.Answer != nil && r.Answer.Node == s.Placement.Node
}

// HoldsUnits reports that the device takes units of its node's capacity.
func (s *GPUDeviceStatus) HoldsUnits() bool {
	return s.Placement != nil && s.Placement.LostSince == nil
}

// InUse reports that a VMI has claimed the device, whatever units it has.
func (s *GPUDeviceStatus) InUse() bool { return s.Attachment != nil && s.Attachment.VMIUID != "" }

// Types of the conditions of a GPUDevice.
const (
	// ConditionHeld says whether units are reserved for the device.
	ConditionHeld = "Held"
	// ConditionAttached says whether a VMI uses the device.
	ConditionAttached = "Attached"
)

// Reasons of ConditionHeld. The binder has more of them for a device that is pending.
const (
	ReasonReserved = "Reserved" // True
	ReasonLost     = "Lost"     // False: the node stopped to serve its units
	ReasonNoUnits  = "NoUnits"  // False: no node has as many free

	ReasonOverBudget = "OverBudget" // False: a budget of the namespace or one above it does not allow it
	ReasonNotAllowed = "NotAllowed" // False: the class or the namespace does not; the message says why
)

// Reasons of ConditionAttached.
const (
	ReasonInUse    = "InUse"    // True
	ReasonStarting = "Starting" // False: it is taken for a VMI that is being created
	ReasonUnused   = "Unused"   // False
)

// Held makes the condition that says whether units are reserved. The reason is the
// caller's only where the device is pending.
func (s *GPUDeviceStatus) Held(pending, message string) metav1.Condition {
	c := metav1.Condition{Type: ConditionHeld, Status: metav1.ConditionFalse, Reason: pending, Message: message}
	switch {
	case s.HoldsUnits():
		c.Status, c.Reason = metav1.ConditionTrue, ReasonReserved
	case s.Placement != nil:
		c.Reason = ReasonLost
	}
	return c
}

// Attached makes the condition that says whether a VMI uses the device. Nobody uses one
// that is pending: a VMI's UID alone is a start that has no units.
func (s *GPUDeviceStatus) Attached() metav1.Condition {
	c := metav1.Condition{Type: ConditionAttached, Status: metav1.ConditionFalse, Reason: ReasonUnused}
	switch {
	case s.InUse() && s.Placement != nil:
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, ReasonInUse, "by VMI "+s.Attachment.VMIName
	case s.Attachment != nil:
		c.Reason, c.Message = ReasonStarting, "for VMI "+s.Attachment.VMIName
	}
	return c
}
