package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/release"
)

func newUninstall(s *streams) *cobra.Command {
	var flags releaseFlags
	var force bool
	cmd := &cobra.Command{
		Use:   "uninstall",
		Short: "Uninstall gpuctl, and take its wiring away",
		Long: `Uninstall gpuctl, and take its wiring away.

The release's hook takes away what gpuctl wrote to the KubeVirt CR; entries that
instances still use stay unless --force. A hook that cannot do its work does not keep
the release: then it goes without, and what is left is said. The CRDs and the GPUNodes
stay.

Devices that tenants ordered stay, and nobody holds their units any more: a device that
is deleted is gone at once. While VMs use devices nothing is uninstalled without --force.`,
		Example: `  gpuctl uninstall
  gpuctl uninstall --force`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runUninstall(cmd.Context(), s, &flags, force) },
	}
	flags.add(cmd)
	cmd.Flags().BoolVar(&flags.wait, "wait", false, "wait until all objects are gone")
	cmd.Flags().BoolVar(&force, "force", false, "take away entries that instances still use, too, and go though VMs use ordered devices")
	return cmd
}

func runUninstall(ctx context.Context, s *streams, flags *releaseFlags, force bool) error {
	progress := newProgress(s)
	defer progress.done()
	client, helm, err := flags.open(progress)
	if err != nil {
		return err
	}
	if _, err := helm.Status(); err != nil {
		if errors.Is(err, release.ErrNotFound) {
			return fmt.Errorf("%w; helm list -A shows all releases", err)
		}
		return client.Explain(err)
	}
	if err := attachedStay(ctx, client, force); err != nil {
		return client.Explain(err)
	}
	if force {
		if err := removeWiring(ctx, s, client, flags); err != nil {
			notRemoved(s, err)
		}
	}
	err = helm.Uninstall(ctx, flags.timeout, true, flags.wait)
	if hook := new(release.HookError); errors.As(err, &hook) {
		progress.done()
		notRemoved(s, err)
		err = helm.Uninstall(ctx, flags.timeout, false, flags.wait)
	}
	progress.done()
	if err != nil {
		return client.Explain(err)
	}
	fmt.Fprintf(s.err, "release %s in namespace %s is uninstalled\n", flags.name, flags.namespace)
	fmt.Fprintln(s.err, "The CRDs, GPUNodes and the GPUWiring stay; to delete them: kubectl delete crd gpunodes.gpuctl.dev gpuwirings.gpuctl.dev")
	return client.Explain(leaveOrders(ctx, s, client))
}

// attachedStay refuses while VMs use devices: their units would be nobody's. It does not
// with force.
func attachedStay(ctx context.Context, client *cluster.Client, force bool) error {
	if force {
		return nil
	}
	devices, err := client.Devices(ctx)
	if err != nil {
		return err
	}
	var used []string
	for i := range devices {
		if d := &devices[i]; d.Status.Attachment != nil {
			used = append(used, d.Namespace+"/"+d.Name)
		}
	}
	if len(used) == 0 {
		return nil
	}
	const shown = 5
	more := ""
	if len(used) > shown {
		used, more = used[:shown], fmt.Sprintf(" and %d more", len(used)-shown)
	}
	return fmt.Errorf("VMs use the GPUDevices %s%s: stop them first, or uninstall with --force", strings.Join(used, ", "), more)
}

// leaveOrders leaves classes and devices, where the cluster has such kinds, so that they
// can be deleted: nobody is there any more who would let them go.
func leaveOrders(ctx context.Context, s *streams, client *cluster.Client) error {
	devices, err := client.Devices(ctx)
	if err != nil {
		return err
	}
	var failed []error
	for i := range devices {
		if d := &devices[i]; slices.Contains(d.Finalizers, v1alpha1.FinalizerUnits) {
			failed = append(failed, client.ReleaseDevice(ctx, d.Namespace, d.Name))
		}
	}
	if err := errors.Join(failed...); err != nil {
		return fmt.Errorf("the release is gone; of its finalizers some are left: %w", err)
	}
	if len(devices) > 0 {
		fmt.Fprintf(s.err, "GPUClasses and the tenants' GPUDevices, of which there are %d, stay as well: kubectl get gpudevices -A\n", len(devices))
	}
	return nil
}

// notRemoved says that the wiring is left.
func notRemoved(s *streams, err error) {
	_ = s.commentary().Findings([]diagnose.Finding{diagnose.New("GPU0107", "cluster", diagnose.Values{"problem": err.Error()})})
}

// removeWiring takes everything away that gpuctl wrote, entries in use as well.
func removeWiring(ctx context.Context, s *streams, client *cluster.Client, flags *releaseFlags) error {
	wire := &wireFlags{remove: true}
	running, err := client.Controllers(ctx, flags.namespace)
	if err != nil {
		return err
	}
	if len(running) > 0 {
		wire.stop = running[0].String()
	}
	wire.force, wire.strict = true, true
	wire.clusterFlags = flags.clusterFlags
	var out output
	out.format = "diff"
	return runLive(ctx, &streams{in: s.in, out: io.Discard, err: s.err}, wire, &out)
}
