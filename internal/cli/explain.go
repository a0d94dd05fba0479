package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/render"
)

func newExplain(s *streams) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "explain [CODE]",
		Short: "Explain a finding's code, or list all codes",
		Example: `  gpuctl explain GPU0204
  gpuctl explain`,
		Args: cobra.MaximumNArgs(1),
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var codes []string
			for _, e := range diagnose.Catalog() {
				codes = append(codes, string(e.Code)+"\t"+e.Title)
			}
			return codes, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return listCodes(s, &out)
			}
			return explain(s, &out, args[0], cmd.CommandPath())
		},
	}
	out.flag(cmd, "text", "json", "yaml")
	return cmd
}

func listCodes(s *streams, out *output) error {
	if done, err := out.structured(s, diagnose.Catalog()); done {
		return err
	}
	var rows [][]render.Cell
	for _, e := range diagnose.Catalog() {
		rows = append(rows, render.Text(string(e.Code), string(e.Severity), e.Title))
	}
	return s.printer().Table([]string{"CODE", "SEVERITY", "TITLE"}, rows)
}

func explain(s *streams, out *output, code, command string) error {
	e, ok := diagnose.Lookup(code)
	if !ok {
		return usagef("explain %q: no such code; list them with: %s", code, command)
	}
	if done, err := out.structured(s, e); done {
		return err
	}
	area, _ := e.Code.Area()
	link := ""
	if e.Link != "" {
		link = ", link " + string(e.Link)
	}
	text := fmt.Sprintf("%s  %s\n%s, %s%s\n\n%s\n\nMessage  %s\n", e.Code, e.Title, e.Severity, area.Name, link, render.Wrap(e.About, 78), e.Message)
	if tenant := e.ForTenant(); tenant != "" {
		text += "Tenant   " + tenant + "\n"
	}
	if e.Hint != "" {
		text += "Hint     " + e.Hint + "\n"
	}
	if e.Retired {
		text += "Retired  no longer reported\n"
	}
	_, err := fmt.Fprintf(s.out, "%sDocs     %s\n", text, e.Anchor())
	return err
}
