// Package pause stops replicas of the controller, as real processes, where it would hurt
// most: between what they decided and what they write. It looks at what they do when they
// wake, and somebody else leads.
package pause
