package diagnose

import (
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// Judgement is how an order stands by the books of all that is known: the binder's own
// reasons. The zero Judgement is none.
type Judgement struct {
	Known bool
	Class ClassView
	// Unusable says why no VM could use the class's units, whoever holds them; nil
	// when one could.
	Unusable *Refusal
	Tenant   bool          // the tenant and its budgets can be read
	Budgets  []tenant.Step // from the tenant up; the use is without the device's own
	// Refusal is why an order without a node gets none now; nil when it has one.
	Refusal *Refusal
	Room    bool   // it could be placed now
	Node    string // where; "" while others are moved first
	// Served and Held are the units of the device's node.
	Served, Held int64
}

// ClassView is what is known of a device's class.
type ClassView struct {
	Exists, Deleting bool
	Resource         gpu.ResourceName
	Entitlement      string // "" when everybody may order
	EntitledBy       string // the namespace that has it, "" for none
}
