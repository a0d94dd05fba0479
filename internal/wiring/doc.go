// Package wiring keeps the wiring of a cluster true: a controller that carries the same
// plan out as gpuctl wire whenever something changes, backs off where somebody else
// keeps undoing it, and says so.
package wiring
