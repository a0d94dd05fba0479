package wiring

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// patience is how long virt-api may take to learn of its new gate, and HyperConverged
// to pass the table on.
const patience = 10 * time.Second

// Follow does what follows a write: it proves by a dry run that virt-api lets VMs have
// host devices, waits until HyperConverged has passed the table on, and, if wake is
// set, touches the instances that KubeVirt had refused. wired is the target as it was
// written. The error is a [patch.Refusal] that is Written when the gate is not live.
func Follow(ctx context.Context, client *cluster.Client, target *patch.Target, wired manifest.Object, wake bool) ([]diagnose.Finding, error) {
	table, err := patch.TableOf(target, wired)
	if err != nil {
		return nil, err
	}
	var findings []diagnose.Finding
	if target.Kind() == patch.KindKubeVirt {
		if findings, err = prove(ctx, client, &target.Document, table); err != nil {
			return findings, err
		}
	}
	if !wake || !table.Set {
		return findings, nil
	}
	if target.Managed != nil && !passedOn(ctx, client, target.Managed, table) {
		return append(findings, diagnose.New("GPU0327", target.Ref(), diagnose.Values{
			"target": target.Ref(), "kubevirt": target.Managed.Ref(),
		})), nil
	}
	woken, failed, err := client.WakeAll(ctx, table.Permits)
	for _, name := range slices.Sorted(maps.Keys(failed)) {
		findings = append(findings, diagnose.New("GPU0104", "VirtualMachineInstance "+name, diagnose.Values{"name": name, "problem": failed[name].Error()}))
	}
	if err != nil {
		findings = append(findings, diagnose.New("GPU0104", "cluster", diagnose.Values{"name": "the rest", "problem": err.Error()}))
	}
	if len(woken) > 0 {
		findings = append(findings, diagnose.New("GPU0103", target.Ref(), diagnose.Values{"names": strings.Join(woken, ", ")}))
	}
	return findings, nil
}

// passedOn waits until HyperConverged has copied the table onto the KubeVirt CR;
// until then KubeVirt refuses instances all the same.
func passedOn(ctx context.Context, client *cluster.Client, kubevirt *manifest.Document, table gpu.Table) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	behind := func(now gpu.Table) bool {
		return slices.ContainsFunc(table.Entries, func(e gpu.Entry) bool { return !e.Disabled && !now.Permits(e.Name) })
	}
	for {
		if obj, err := client.Get(ctx, kubevirt); err == nil {
			now, err := patch.TableOf(&patch.Target{Document: *kubevirt}, obj)
			if err == nil && !behind(now) {
				return true
			}
		}
		select {
		case <-ctx.Done():
			return false
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// prove asks virt-api whether it lets VMs have host devices.
func prove(ctx context.Context, client *cluster.Client, target *manifest.Document, table gpu.Table) ([]diagnose.Finding, error) {
	device := "nvidia.com/gpuctl-probe"
	for _, e := range table.Entries {
		if e.Name.IsNVIDIA() && e.Name.Check() == nil {
			device = string(e.Name)
			break
		}
	}
	err := client.VerifyGate(ctx, target.Meta("namespace"), device, patience)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, cluster.ErrGateClosed):
		return nil, &patch.Refusal{Written: true, Findings: []diagnose.Finding{diagnose.New("GPU0323", target.Ref(), diagnose.Values{
			"object": target.Ref(), "namespace": target.Meta("namespace"),
		})}}
	case ctx.Err() != nil:
		return nil, fmt.Errorf("the change is written; the check of the gate was stopped: %w", err)
	default:
		return []diagnose.Finding{diagnose.New("GPU0324", target.Ref(), diagnose.Values{"reason": err.Error()})}, nil
	}
}
