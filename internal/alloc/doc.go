// Package alloc says on which node a set of GPUs is placed, or why on none:
// who orders, binds, admits, simulates or diagnoses asks the same Decide.
//
// A Snapshot is what the nodes serve and what devices hold of it. It never
// changes: With returns the next one, which shares all but a few dozen small
// pieces with it, so that a snapshot is kept, tried out and thrown away for
// nothing. Decide looks up indexes by resource name and free units; what it
// costs does not depend on the number of devices, and hardly on that of nodes.
//
// Whatever else must hold for a launcher to run on a node is judged by the
// caller and handed in as a function that gives a reason.
//
// The package is pure: it does no I/O and reads no clock; effort is counted in
// steps. Snapshots are safe for concurrent use.
package alloc
