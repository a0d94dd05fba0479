// Package bind gives GPU units to devices, and devices a node for their VM, by the
// protocol of docs/design/binding.md.
//
// Ledger is the protocol's part "The ledger", and the only writer of placements and of
// answers with a node. Who decides uses it from one goroutine:
//
//  1. after the Lease is won: Lead, then list the devices live, then decide;
//  2. Commit what was decided, with each device as it was when it was decided on; take
//     what was written over into the own view, and judge what is void anew;
//  3. after any error but ErrInvalid nothing is led any more: forget everything that was
//     assumed, and begin at 1, or leave.
//
// What a ledger does not know: budgets, room, arrival order, finalizers. It writes what
// it is told to or nothing, once, whatever stops in between.
package bind
