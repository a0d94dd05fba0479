package main

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

var kubeVirt = schema.GroupVersionKind{Group: "kubevirt.io", Version: "v1", Kind: "KubeVirt"}

// cards are the GPUs of the nodes, one kind a node.
func cards() []gpu.DeviceID { return []gpu.DeviceID{0x2335, 0x26b9, 0x20b5} }

func cardOf(node int) gpu.DeviceID { return cards()[node%len(cards())] }

func namespaces() []string {
	var out []string
	for i := range 20 {
		out = append(out, fmt.Sprintf("tenant-%02d", i))
	}
	return out
}

func nodeName(i int) string { return fmt.Sprintf("gpu-node-%04d", i) }

// isStarting reports a kind that the API server does not serve yet.
func isStarting(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) }

// set is a DaemonSet.
type set struct{ Name, Image, Labels, UID string }

// node makes a node, its inventory, and what runs there.
func (s *seeder) node(ctx context.Context, i int, agents, plugin *set) error {
	name, card := nodeName(i), cardOf(i)
	type function struct {
		Address, ID string
		Group, NUMA int
	}
	var functions []function
	for g := range s.gpus {
		functions = append(functions, function{gpu.Address{Bus: uint8(0x10 + 8*g)}.String(), gpu.NVIDIA(card).String(), 20 + g, 2 * g / s.gpus})
	}
	values := map[string]any{
		"Name": name, "Zone": string("abc"[i%3]), "Octet": fmt.Sprintf("%d.%d", 100+i/250, i%250), "GPUs": s.gpus,
		"Resource": gpu.Newest().Name(card), "Functions": functions, "Features": features(), "Images": make30(),
		"Lease": v1alpha1.AgentLease(name), "AgentLabels": agentLabels, "Now": s.now,
		"Conditions": []condition{
			{"MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"},
			{"DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"},
			{"PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"},
			{"Ready", "True", "KubeletReady", "kubelet is posting ready status"},
		},
	}
	for _, kind := range []string{"node", "gpunode", "lease"} {
		if _, err := s.create(ctx, kind, values); err != nil {
			return err
		}
	}
	for _, d := range []*set{agents, plugin} {
		pod := map[string]any{"Name": fmt.Sprintf("%s-%05d", d.Name, i), "Set": d, "Node": name}
		if _, err := s.create(ctx, "podofset", pod); err != nil {
			return err
		}
	}
	return nil
}

func make30() []int {
	out := make([]int, 30)
	for i := range out {
		out[i] = 10 + i
	}
	return out
}

func features() []string {
	return []string{"ADX", "AESNI", "AVX", "AVX2", "AVX512BF16", "AVX512BITALG", "AVX512BW", "AVX512CD", "AVX512DQ", "AVX512F", "FMA3", "GFNI", "SHA", "VAES", "VPCLMULQDQ"}
}

// condition is one of a status.
type condition struct{ Type, Status, Reason, Message string }

// vm makes a machine, its instance, its launcher, and what the scheduler says.
func (s *seeder) vm(ctx context.Context, i int) error {
	const each = 4 // GPUs of one that runs
	place := i * each / s.gpus
	running := i < s.vms/2 && place < s.nodes && s.gpus >= each
	names := namespaces()
	card, wanted, node := cardOf(i), 1+i%8, ""
	if running {
		card, wanted, node = cardOf(place), each, nodeName(place)
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
		"Name": fmt.Sprintf("web-7c9f8d6b5-%05d", i), "Namespace": names[i%len(names)], "Node": nodeName(i % s.nodes),
	})
	return err
}
