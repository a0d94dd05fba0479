// Package tenant says who may have how much: the tree of namespaces, the
// budgets that each level declares, and entitlements. Whoever orders, places,
// admits, lists or accounts for GPUs asks this package, so that they agree.
//
// What cannot be read refuses: a level whose place in the tree or whose budget
// is unknown never counts as a root or as unlimited. It refuses itself and what
// is below it, and nobody else.
//
// The package is pure: it does no I/O and reads no clock. A Tree is immutable
// and safe for concurrent use; a Use is not.
package tenant
