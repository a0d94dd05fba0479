package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Reference returns the command reference as Markdown: every command with its
// description, examples and flags. docs/cli.md is generated from it.
func Reference() string {
	var out strings.Builder
	out.WriteString("# Commands\n\n<!-- generated: make generate -->\n")
	root := newRoot(&streams{in: strings.NewReader(""), out: io.Discard, err: io.Discard})
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		if c.IsAvailableCommand() || c == root {
			reference(&out, c)
		}
		for _, sub := range c.Commands() {
			if c.Name() != "completion" { // its own subcommands explain themselves
				walk(sub)
			}
		}
	}
	walk(root)
	return out.String()
}

func reference(out *strings.Builder, c *cobra.Command) {
	text := c.Long
	if text == "" {
		text = c.Short
	}
	fmt.Fprintf(out, "\n## %s\n\n%s\n", c.CommandPath(), strings.TrimSpace(text))
	if c.Runnable() {
		fmt.Fprintf(out, "\n```\n%s\n```\n", c.UseLine())
	}
	if c.Example != "" {
		fmt.Fprintf(out, "\nExamples:\n\n```\n%s\n```\n", c.Example)
	}
	if flags := strings.TrimRight(c.NonInheritedFlags().FlagUsages(), "\n"); flags != "" {
		fmt.Fprintf(out, "\nFlags:\n\n```\n%s\n```\n", flags)
	}
}
