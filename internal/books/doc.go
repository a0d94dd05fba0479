// Package books keeps what is offered, ordered, held and used, up to date with
// every change: one reader for the binder, webhooks, the catalog and the CLI, so
// that they answer alike.
//
// Books are filled from whatever the caller knows: a controller's caches, one
// look at a cluster, files. What follows from several of these facts is worked
// out when it is asked for, and only as far as something changed: a device that
// is placed costs some microseconds, whatever the number of devices.
//
// The package is pure. Books are not safe for concurrent use; the snapshots they
// return are.
package books
