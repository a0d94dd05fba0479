// Command gendocs writes the documentation that is generated from the code:
// docs/codes.md and docs/cli.md.
package main

import (
	"fmt"
	"os"
	"strings"

	"github.com/gpuctl/gpuctl/internal/cli"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

func main() {
	for file, text := range map[string]string{"docs/codes.md": codes(), "docs/cli.md": cli.Reference()} {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
}

// codes returns the catalogue as Markdown, a section per code.
func codes() string {
	var out strings.Builder
	out.WriteString("# Finding codes\n\n<!-- generated: make generate -->\n\n" +
		"Every finding of gpuctl has a code that never changes its meaning. `gpuctl explain CODE` prints the same text.\n" +
		"Errors keep a VM from working, warnings need a look, infos explain. `gpuctl diagnose` makes an error of a warning that is why a VM or a node's GPUs cannot be used, and " +
		"sorts by the link of the chain that a finding is about: see [diagnose](diagnose.md).\n" +
		"What is refused (GPU06xx, GPU07xx) is told twice: the operator reads the message, with all of the arithmetic in it; a tenant reads the code and a text that names no node and nothing of what others have.\n")
	area := ""
	for _, e := range diagnose.Catalog() {
		if a, _ := e.Code.Area(); a.Name != area {
			area = a.Name
			fmt.Fprintf(&out, "\n## GPU%sxx: %s\n", a.Digits, area)
		}
		retired := ""
		if e.Retired {
			retired = " (retired: no longer reported)"
		}
		about := string(e.Severity)
		if e.Link != "" {
			about += ", " + string(e.Link)
		}
		fmt.Fprintf(&out, "\n<a id=%q></a>\n\n### %s %s%s\n\n*%s.* %s\n\n> %s\n", strings.ToLower(string(e.Code)), e.Code, e.Title, retired, about, e.About, escape(e.Message))
		if tenant := e.ForTenant(); tenant != "" {
			fmt.Fprintf(&out, "\nA tenant reads: %s\n", escape(tenant))
		}
		if e.Hint != "" {
			fmt.Fprintf(&out, "\nNext: %s\n", escape(e.Hint))
		}
	}
	return out.String()
}

// escape keeps Markdown from reading <placeholders> as HTML.
func escape(s string) string { return strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(s) }
