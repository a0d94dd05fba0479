// Package arch checks the shape of the code: which package may import which,
// what the pure ones must not touch, and how large a file may grow. It has
// nothing but tests; the table of what is allowed is in table_test.go.
package arch
