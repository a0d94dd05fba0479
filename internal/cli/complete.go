package cli

import (
	"context"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/internal/cluster"
)

// completeFlags completes the flags that commands share, with the same names
// everywhere: contexts of the kubeconfig, namespaces and nodes of the cluster.
func completeFlags(cmd *cobra.Command) {
	asked := func(kind string) func(context.Context, *scopeFlags) ([]string, error) {
		return func(ctx context.Context, f *scopeFlags) ([]string, error) { return f.names(ctx, kind) }
	}
	for flag, names := range map[string]func(context.Context, *scopeFlags) ([]string, error){
		"context":   func(_ context.Context, f *scopeFlags) ([]string, error) { return cluster.Contexts(f.kubeconfig) },
		"namespace": asked("namespace"),
		"node":      asked("node"),
	} {
		if cmd.Flags().Lookup(flag) == nil {
			continue
		}
		_ = cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
			return found(names(cmd.Context(), typed(cmd)))
		})
	}
}

// typed returns the cluster flags as they stand on the command line so far.
func typed(cmd *cobra.Command) *scopeFlags {
	value := func(name string) string {
		if flag := cmd.Flags().Lookup(name); flag != nil {
			return flag.Value.String()
		}
		return ""
	}
	return &scopeFlags{clusterFlags{value("kubeconfig"), value("context")}, value("namespace")}
}

// found offers names alone; why there are none is only said to who debugs completion.
func found(names []string, err error) ([]string, cobra.ShellCompDirective) {
	if err != nil {
		cobra.CompDebugln(err.Error(), false)
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeSubject completes "vm/", "vmi/", "node/" and "device/", and what follows them with
// names of the cluster.
func completeSubject(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, _, ok := strings.Cut(word, "/")
	if !ok {
		return []string{"vm/", "vmi/", "node/", "device/"}, cobra.ShellCompDirectiveNoSpace | cobra.ShellCompDirectiveNoFileComp
	}
	names, err := typed(cmd).names(cmd.Context(), kind)
	for i := range names {
		names[i] = kind + "/" + names[i]
	}
	return found(names, err)
}
