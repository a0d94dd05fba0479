package tenant

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNotTenant is what a namespace gets that is no tenant: it has no chain and
// no budget, and whether it may have GPUs is not decided here. A namespace that
// is a tenant and has no budget gets a chain.
var ErrNotTenant = errors.New("the namespace is no tenant")

// Reason is why a namespace is refused, in a form that programs branch on.
type Reason string

// The reasons.
const (
	UnknownNamespace Reason = "UnknownNamespace" // it is not in the snapshot
	Terminating      Reason = "Terminating"      // a level is being deleted: its budget goes before it does
	Cycle            Reason = "Cycle"            // the levels lead back to one another
	MissingParent    Reason = "MissingParent"    // a level is named and does not exist
	Contradiction    Reason = "Contradiction"    // two sources tell different parents
	TreeUnreadable   Reason = "TreeUnreadable"   // what tells the parent cannot be read, or not yet
	NoRelease        Reason = "NoRelease"        // Cozystack: the release that made the level is not there
	BudgetUnreadable Reason = "BudgetUnreadable"
	BudgetNegative   Reason = "BudgetNegative"
	BudgetFractional Reason = "BudgetFractional"
	BudgetTooLarge   Reason = "BudgetTooLarge"
	InvalidAsk       Reason = "InvalidAsk" // no resource name, or no positive number of units
)

// Fault is what is wrong with one level. Detail is for the operator: it may
// quote budgets and names that a tenant below has no right to know.
type Fault struct {
	Reason Reason
	Detail string
}

// Refusal is why nothing can be had in a namespace: a level, the namespace's
// own or one above it, that cannot be read.
type Refusal struct {
	Namespace string // who is refused
	Level     string // the namespace with the fault
	Fault
}

// Error tells the operator everything.
func (r *Refusal) Error() string {
	if r.Level == r.Namespace {
		return fmt.Sprintf("namespace %q is refused: %s", r.Namespace, r.Detail)
	}
	return fmt.Sprintf("namespace %q is refused, as everything below %q: %s", r.Namespace, r.Level, r.Detail)
}

// ForTenant tells the tenant the level and the kind of fault, and quotes nothing
// that belongs to another level.
func (r *Refusal) ForTenant() string {
	switch r.Reason {
	case InvalidAsk:
		return r.Detail
	case UnknownNamespace:
		return fmt.Sprintf("namespace %s is not known yet; try again", r.Namespace)
	case Terminating:
		return fmt.Sprintf("namespace %s is being deleted", r.Level)
	case BudgetUnreadable, BudgetNegative, BudgetFractional, BudgetTooLarge:
		return fmt.Sprintf("the GPU budget of %s cannot be read; ask whoever administers it", r.Level)
	default:
		return fmt.Sprintf("which namespaces are above %s cannot be told; ask whoever administers it", r.Level)
	}
}

// quoted returns "a", "b" for a list of names.
func quoted(names []string) string {
	out := make([]string, len(names))
	for i, name := range names {
		out[i] = strconv.Quote(name)
	}
	return strings.Join(out, ", ")
}
