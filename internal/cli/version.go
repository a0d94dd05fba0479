package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// version is set at link time to the release's tag.
var version string

// build describes the running binary.
type build struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func currentBuild() build {
	b := build{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	if b.Version == "" {
		b.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" {
			b.Commit = s.Value
		}
	}
	return b
}

func newVersion(s *streams) *cobra.Command {
	var out output
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print gpuctl's version",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			b := currentBuild()
			if out.is("short") {
				_, err := fmt.Fprintln(s.out, b.Version)
				return err
			}
			if done, err := out.structured(s, b); done {
				return err
			}
			_, err := fmt.Fprintln(s.out, strings.Join(slices.DeleteFunc([]string{"gpuctl", b.Version, b.Commit, b.Go, b.Platform}, func(x string) bool { return x == "" }), " "))
			return err
		},
	}
	out.flag(cmd, "text", "short", "json", "yaml")
	return cmd
}
