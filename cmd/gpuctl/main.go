// Command gpuctl makes NVIDIA GPUs usable in KubeVirt virtual machines.
package main

import (
	"os"

	"github.com/gpuctl/gpuctl/internal/cli"
)

func main() {
	os.Exit(cli.Main(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
