package main

import (
	"context"
	"fmt"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

func namespaces() []string {
	var out []string
	for i := range 20 {
		out = append(out, fmt.Sprintf("tenant-%02d", i))
	}
	return out
}

// set is a DaemonSet.
type set struct{ Name, Image, Labels, UID string }

// node makes a node, its inventory, and what runs there.
func (s *seeder) node(ctx context.Context, i int, agents, plugin *set) error {
	if err := s.fleet.Node(ctx, i); err != nil {
		return err
	}
	for _, d := range []*set{agents, plugin} {
		pod := map[string]any{"Name": fmt.Sprintf("%s-%05d", d.Name, i), "Set": d, "Node": fleet.NodeName(i)}
		if _, err := s.create(ctx, "podofset", pod); err != nil {
			return err
		}
	}
	return nil
}

// condition is one of a status.
type condition struct{ Type, Status, Reason, Message string }

// vm makes a machine, its instance, its launcher, and what the scheduler says.
func (s *seeder) vm(ctx context.Context, i int) error {
	const each = 4 // GPUs of one that runs
	place := i * each / s.gpus
	running := i < s.vms/2 && place < s.nodes && s.gpus >= each
	names := namespaces()
	card, wanted, node := fleet.CardOf(i), 1+i%8, ""
	if running {
		card, wanted, node = fleet.CardOf(place), each, fleet.NodeName(place)
	}
	name := fmt.Sprintf("trainer-%04d", i)
	values := map[string]any{
		"Name": name, "Namespace": names[i%len(names)], "Running": running, "Node": node, "Resource": gpu.Newest().Name(card),
		"GPUs": make([]int, wanted), "Nodes": s.nodes, "Now": s.now, "N": i, "Pod": fmt.Sprintf("virt-launcher-%s-%05d", name, i),
		"Status": "Running", "Phase": "Running",
		"VMConditions": []condition{
			{"Ready", "True", "", ""}, {"LiveMigratable", "False", "HostDeviceNotLiveMigratable", "VMI uses a PCI host devices"}, {"AgentConnected", "True", "", ""},
		},
	}
	for g := range wanted {
		values["GPUs"].([]int)[g] = g
	}
	if !running {
		unschedulable := condition{"PodScheduled", "False", "Unschedulable", fmt.Sprintf("0/%d nodes are available: %d Insufficient %s.", s.nodes, s.nodes, gpu.Newest().Name(card))}
		values["Status"], values["Phase"] = "ErrorUnschedulable", "Scheduling"
		values["VMConditions"] = []condition{{"Ready", "False", "GuestNotRunning", "Guest VM is not reported as running"}, unschedulable}
	}
	values["VMIConditions"] = values["VMConditions"]
	for _, o := range []struct{ kind, uid string }{{"vm", "VMUID"}, {"vmi", "VMIUID"}, {"launcher", "PodUID"}} {
		uid, err := s.create(ctx, o.kind, values)
		if err != nil {
			return err
		}
		values[o.uid] = uid
	}
	if running {
		return nil
	}
	_, err := s.create(ctx, "event", values)
	return err
}

// plainPod makes a pod that has nothing to do with GPUs.
func (s *seeder) plainPod(ctx context.Context, i int) error {
	names := namespaces()
	_, err := s.create(ctx, "plainpod", map[string]any{
		"Name": fmt.Sprintf("web-7c9f8d6b5-%05d", i), "Namespace": names[i%len(names)], "Node": fleet.NodeName(i % s.nodes),
	})
	return err
}
