package cli

import (
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// plugin is the file name by which kubectl finds gpuctl as its plugin.
const plugin = "kubectl-gpuctl"

// nameAfter gives the command the name that the program was started under: what
// kubectl starts as its plugin is called `kubectl gpuctl` in help, examples and
// errors, and its completion scripts complete kubectl-gpuctl. Every other file
// name, that of a copy with a version in it too, is gpuctl; for it "" is returned.
func nameAfter(program string, root *cobra.Command) (name string) {
	if !isPlugin(program) {
		return ""
	}
	root.Use = plugin
	root.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl gpuctl"}
	for _, c := range root.Commands() {
		c.Example = strings.ReplaceAll(c.Example, "gpuctl ", "kubectl gpuctl ")
	}
	return "kubectl gpuctl"
}

// isPlugin reports whether the program's file is kubectl's plugin. Windows adds
// .exe, and case means nothing there.
func isPlugin(program string) bool {
	name := strings.ToLower(filepath.Base(program))
	return strings.TrimSuffix(name, ".exe") == plugin
}
