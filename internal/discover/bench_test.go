package discover

import (
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

// BenchmarkHost reads whole machines: "dense" is the one that lspci -nnk takes
// 20 to 30 ms for; "vfs" is a vGPU server, where every function is NVIDIA's.
func BenchmarkHost(b *testing.B) {
	for name, h := range map[string]gpu.Host{
		"dense256": fakesys.Dense(256, 8),
		"vfs264":   fakesys.DenseVFs(8),
		"small16":  fakesys.Dense(16, 2),
	} {
		b.Run(name, func(b *testing.B) {
			root := fakesys.New(b, h)
			for b.Loop() {
				got, _, err := Host(root)
				if err != nil || len(got.Functions) != len(h.Functions) {
					b.Fatalf("Host(): %d functions, error %v", len(got.Functions), err)
				}
			}
		})
	}
}

// BenchmarkGHW is the part of BenchmarkHost/dense256 that ghw takes.
func BenchmarkGHW(b *testing.B) {
	root := fakesys.New(b, fakesys.Dense(256, 8))
	for b.Loop() {
		if got := listByGHW(root); len(got) != 256 {
			b.Fatalf("listByGHW(): %d devices", len(got))
		}
	}
}
