// Package attach takes devices for the VMIs that are created, hands them to the VMIs
// that are stored, and takes them back from those that are no more: the part of
// docs/design/binding.md that webhooks and the collector have. The binder answers.
//
// Nothing is remembered from one call to the next but what the caches hold: any replica
// goes on with what another one began.
package attach
