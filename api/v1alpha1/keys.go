package v1alpha1

// GroupName is the API group of gpuctl's kinds, and the prefix of its keys.
const GroupName = "gpuctl.dev"

// Labels that gpuctl's chart puts on its objects, and by which gpuctl finds them.
const (
	LabelPartOf    = "app.kubernetes.io/part-of"   // PartOf
	LabelComponent = "app.kubernetes.io/component" // one of the components below

	PartOf              = "gpuctl"
	ComponentAgent      = "agent"
	ComponentHook       = "hook"
	ComponentController = "controller"
)

// AgentLeasePrefix and a node's name are the name of the Lease by which the
// node's agent says that it lives. The Lease is in the agent's own namespace.
const AgentLeasePrefix = "gpuctl-agent-"

// AgentLease returns the name of the Lease of a node's agent.
func AgentLease(node string) string { return AgentLeasePrefix + node }

// ControllerLease is the name of the Lease that the leading replica of the controller
// holds, in the controller's own namespace.
const ControllerLease = "gpuctl-controller"
