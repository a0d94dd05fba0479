package cli

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// output is the -o flag: one of the formats a command knows.
type output struct {
	format  string
	formats []string
}

// flag adds -o with the given formats; the first is the default.
func (o *output) flag(cmd *cobra.Command, formats ...string) {
	o.format, o.formats = formats[0], formats
	cmd.Flags().VarP(o, "output", "o", "output format: "+strings.Join(formats, ", "))
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(formats, cobra.ShellCompDirectiveNoFileComp))
}

// String implements pflag.Value.
func (o *output) String() string { return o.format }

// Type implements pflag.Value.
func (o *output) Type() string { return "format" }

// Set implements pflag.Value.
func (o *output) Set(v string) error {
	if !slices.Contains(o.formats, v) {
		return fmt.Errorf("unknown format, want one of %s", strings.Join(o.formats, ", "))
	}
	o.format = v
	return nil
}

func (o *output) is(format string) bool { return o.format == format }

// structured prints v when the format is json or yaml, and says whether it did.
func (o *output) structured(s *streams, v any) (bool, error) {
	switch o.format {
	case "json":
		enc := json.NewEncoder(s.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		return true, enc.Encode(v)
	case "yaml":
		text, err := manifest.Marshal(v)
		if err == nil {
			_, err = s.out.Write(text)
		}
		return true, err
	}
	return false, nil
}
