// Package binding explores every run of the protocol of docs/design/binding.md in a
// small world: 2 leaders, 2 webhooks, 3 devices, 2 VMs.
//
// What stands for what:
//   - Devices 0 and 1 are orders, device 2 is a template device of VM 1. VM 0 wants 0 and
//     1, VM 1 wants 1 and 2. Each device has one unit. A start is told by its request
//     id: 1 and 2 are starts of VM 0, 3 and 4 of VM 1. A VMI's UID is the id of the start
//     that stored it.
//   - A resourceVersion is only ever compared with the live one, and never comes back. So
//     no number is kept: a write of a device drops every entry for it that a leader or the
//     ledger has, which is what its conflict would do later.
//   - A write that depends on the device alone, and on facts that cannot end (a VMI's UID
//     is gone, a create is over), is one step: read, compare and swap again until it fits.
//     What depends on other things (leaders' decisions, the VMI that a launcher's webhook
//     has read) is read in one step and written in a later one, a device at a time.
//   - Time is left out: whatever a clock decides may happen at any moment. "Longer than a
//     create can last" is the create being over.
//   - A process is as slow as it likes. A pause is what others conclude from that: a
//     leader's Lease goes to the other one, a webhook's create ends without its answer.
//     A crash also loses what the process remembers. Both count as faults.
//   - The allocator is any that keeps to the rules of a batch. What is left out of the
//     model only refuses more: dry runs, the validating webhook, refusals by the checks.
//
// Symmetry: leaders are alike, and so are webhooks; nothing depends on which of two is
// which. States that differ in that alone are one.
package binding
