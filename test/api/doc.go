// Package api proves on a real API server what the kinds of group gpuctl.dev
// promise: what is stored and with which defaults, what is refused and in which
// words, and what cannot be changed.
package api
