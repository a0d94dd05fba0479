// Package demo is the story that make demo tells, on a real control plane with
// real KubeVirt. It is a test like any other: what it shows, it checks.
package demo
