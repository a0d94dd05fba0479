// Package usage says who uses what: which resource names count as GPUs, what
// devices hold, what pods take without a device, and what nodes serve. The
// binder, webhooks, the catalog, usage records and the CLI read it here, so that
// they agree.
//
// A unit counts once: a device and the launcher of its VMI are one use. How far a
// device covers its launcher is not the same for a budget and for a node, so there
// are two readers, named after what they are for: Snapshot.BudgetUse and
// Snapshot.CapacityUse. All amounts are whole units and stop at the largest int64.
//
// The package is pure: it does no I/O, reads no clock, and keeps and changes
// nothing that it is given. What it returns does not hang on the order of input.
package usage
