package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of the conditions of a GPUWiring.
const (
	// ConditionWired says whether the target has all that VMs need for the GPUs that
	// nodes serve.
	ConditionWired = "Wired"
	// ConditionContested says that somebody takes it away again and again.
	ConditionContested = "Contested"
)

// Reasons of ConditionWired.
const (
	ReasonWired       = "Wired"       // True
	ReasonHeldBack    = "HeldBack"    // the first entry would break VMs
	ReasonIncomplete  = "Incomplete"  // nodes serve a name that nothing tells the device of
	ReasonNotPassedOn = "NotPassedOn" // HyperConverged has not copied the table onto the KubeVirt CR
	ReasonRefused     = "Refused"     // the plan must not be carried out, or does not do what it should
	ReasonNoKubeVirt  = "NoKubeVirt"  // there is none, or it is not deployed yet
	ReasonFailed      = "Failed"      // the API server or a webhook fails; it is tried again
	ReasonBackedOff   = "BackedOff"   // contested: it is written again within a minute
)

// Reasons of ConditionContested.
const (
	ReasonReverted = "Reverted" // True
	ReasonCalm     = "Calm"     // False
)

// Wired makes the condition that says whether the target is wired.
func Wired(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: ConditionWired, Status: status, Reason: reason, Message: message}
}

// Contested makes the condition that somebody reverts the wiring; an empty message
// says that nobody does.
func Contested(message string) metav1.Condition {
	if message == "" {
		return metav1.Condition{Type: ConditionContested, Status: metav1.ConditionFalse, Reason: ReasonCalm}
	}
	return metav1.Condition{Type: ConditionContested, Status: metav1.ConditionTrue, Reason: ReasonReverted, Message: message}
}

// Types of the conditions of a GPUClass.
const (
	// ConditionPermitted says whether KubeVirt lets VMs have the class's resource.
	ConditionPermitted = "Permitted"
	// ConditionAvailable says whether a device of one unit could be placed now.
	ConditionAvailable = "Available"
)

// Reasons of ConditionPermitted. Where there is no KubeVirt it is Unknown, NoKubeVirt.
const (
	ReasonPermitted    = "Permitted"    // True: a PCI or a mediated entry of the table has the name
	ReasonNoTable      = "NoTable"      // True: without a table KubeVirt permits everything
	ReasonNotPermitted = "NotPermitted" // False, of ConditionAvailable, too
)

// Reasons of ConditionAvailable.
const (
	ReasonFree      = "Free"      // True
	ReasonTaken     = "Taken"     // False: all units are held or in use
	ReasonNotServed = "NotServed" // False: no node of the class serves any
	ReasonClosed    = "Closed"    // False: what nobody holds is on nodes that take nothing new, or pods have it
)

// Permitted makes the condition that says whether KubeVirt permits the resource.
func Permitted(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: ConditionPermitted, Status: status, Reason: reason, Message: message}
}

// Available makes the condition that says whether there is something to order.
func Available(status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: ConditionAvailable, Status: status, Reason: reason, Message: message}
}
