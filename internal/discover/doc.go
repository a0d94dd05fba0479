// Package discover turns a machine, or text pasted from one, into the
// inventory of package gpu. It is the only importer of ghw and pcidb.
//
// [Host] reads this machine's sysfs (or a copy of one) without privileges.
// [FromText] reads what people paste: lspci, IOMMU groups, virtual functions.
// Both leave unknown what their source does not say.
package discover
