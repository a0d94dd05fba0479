// Package charts embeds gpuctl's Helm charts.
package charts

import "embed"

// FS holds the charts, each in a folder of its name.
//
//go:embed all:gpu-operator-hooks
var FS embed.FS

// GPUOperatorHooks is the chart that installs gpuctl.
const GPUOperatorHooks = "gpu-operator-hooks"
