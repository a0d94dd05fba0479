// Package bundle packs the evidence of a diagnosis into an archive that can be
// handed to somebody else, and reads it back. What goes in is listed field by field:
// whatever is not on the list stays out, and texts are cleaned of credentials,
// network addresses and serial numbers on top. docs/diagnose.md has the layout.
package bundle

import (
	"time"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// Bundle is the evidence of one diagnosis.
type Bundle struct {
	About      About
	Docs       []manifest.Document
	Conditions []manifest.Object // pasted ones, which belong to no object
	Inventory  []Inventory
	Logs       []diagnose.Log
	Findings   []diagnose.Finding // what the diagnosis came to, for people
}

// About says where a bundle comes from and what it is complete for.
type About struct {
	Format  int       `json:"format"` // 1
	Version string    `json:"gpuctl"` // that packed it
	Packed  time.Time `json:"packed"`
	Read    time.Time `json:"read"` // when the cluster was read; zero for files
	Pods    bool      `json:"pods"`
	Agents  bool      `json:"agents"`
	Control bool      `json:"controller"`
	HNC     bool      `json:"hnc,omitempty"`
	Release string    `json:"pluginVersion,omitempty"` // of --plugin-version
	// Problems say what could not be read.
	Problems []diagnose.Finding `json:"problems,omitempty"`
}

// Inventory is a host's inventory that was given beside the objects.
type Inventory struct {
	Host     gpu.Host           `json:"host"`
	Findings []diagnose.Finding `json:"findings,omitempty"`
}

const (
	format = 1
	folder = "gpuctl-bundle/"

	// maxBytes bounds what is unpacked, maxFiles how many files: a bundle comes from
	// somebody else.
	maxBytes = 512 << 20
	maxFiles = 10_000
)

const readme = `This is what gpuctl diagnose goes by, packed by gpuctl diagnose --bundle.

  gpuctl diagnose -f THIS-FILE.tar.gz     comes to the same findings
  gpuctl status -f THIS-FILE.tar.gz       shows the same screen

bundle.json       when and by what it was packed, and what could not be read
objects/KIND.yaml the objects, reduced to the fields that are looked at
conditions.json   conditions that were pasted without their object
hosts/N.json      inventories that were given by --lspci or --root
logs/N.json       logs that were given, reduced to the lines that say something
findings.json     what the diagnosis came to

Objects carry no environment, no annotations but gpuctl's own, no volumes, no
network, no firmware and no cloud-init data. Messages are cleaned of credentials,
network addresses, UUIDs and serial numbers, which read [hidden]. The names of
nodes, namespaces, VMs, pods and resources are kept: look through them before you
hand the file to somebody.
`
