package diagnose

import (
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// Ask is what a machine that starts asks for, together on one node.
type Ask struct {
	Object    string // as a refusal names it
	Namespace string
	Devices   []string   // names of those that there are
	New       []Template // of those that are to be made
}

// SetJudgement is how an Ask stands by the books of all that is known. The zero
// SetJudgement is none.
type SetJudgement struct {
	Known     bool
	Resources map[string]gpu.ResourceName // of the classes of new devices that there are
	Budgets   []tenant.Step               // from the tenant up, of what new devices would take
	// Refusal is why no node can take the set now, as far as units and budgets go; nil
	// when one can.
	Refusal *Refusal
	Node    string // the one
}
