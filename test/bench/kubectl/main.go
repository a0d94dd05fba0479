// Command kubectl is the yardstick of the start-up benchmark: kubectl linked
// from the Kubernetes modules of the release that gpuctl is built with. It is
// only built and timed, never shipped or imported.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"

	_ "k8s.io/client-go/plugin/pkg/client/auth" // as kubectl is released
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
