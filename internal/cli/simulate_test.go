package cli

import (
	"strings"
	"testing"
)

// TestSimulate keeps what is said on the cluster of testdata/simulate, CLUSTER: worker-1
// has 2 units free, and a VM runs with 4; worker-2 has 5 free, a taint, and 24 GiB of
// memory; worker-3 is cordoned; worker-4 has other GPUs.
func TestSimulate(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	tests := map[string][]string{
		"order": {
			"order --class h200 --count 2 -n tenant-blue CLUSTER",
			"order --class h200 --count 4 -n tenant-acme-dev CLUSTER -o wide",
			"order --class h200 --count 4 -n tenant-acme-dev CLUSTER -o json",
			"order --class h200 --count 6 -n tenant-blue CLUSTER",
			"order --class h200 --count 6 -n tenant-blue CLUSTER -o yaml",
			"order --class h200-fast --count 2 -n tenant-blue CLUSTER -o wide",
		},
		"order-refused": {
			"order --class h200 --count 6 -n tenant-acme-dev CLUSTER",
			"order --class h200 --count 5 -n tenant-acme CLUSTER -o yaml",
			"order --class h200 --count 8 -n tenant-blue CLUSTER -o wide",
			"order --class h200-fast --count 4 -n tenant-blue CLUSTER -o wide",
			"order --class h200-vip -n tenant-acme CLUSTER",
			"order --class h200-vip -n tenant-blue CLUSTER",
			"order --class l40s --count 5 -n tenant-blue CLUSTER",
			"order --class nobody -n tenant-blue CLUSTER",
			"order --class h200 -n default CLUSTER",
			"order --class h200 -n nowhere CLUSTER",
			"order --class h200 --count 5 -n tenant-blue CLUSTER -f waits.yaml",
		},
		"order-times": {
			"order --class h200 --count 2 -n tenant-blue CLUSTER --times 3",
			"order --class h200 --count 2 -n tenant-blue CLUSTER --times 4",
			"order --class h200 --count 2 -n tenant-acme CLUSTER --times 4",
		},
		"order-drain": {
			"order --class h200 --count 2 -n tenant-blue CLUSTER --drain worker-1",
			"order --class h200-fast --count 2 -n tenant-blue CLUSTER --drain worker-1 -o wide",
			"order --class h200 --count 2 -n tenant-blue CLUSTER -f roomy.yaml --drain worker-1 -o yaml",
			"order --class h200 -n tenant-blue CLUSTER --drain worker-1 --drain worker-1",
			"order --class h200 -n tenant-blue CLUSTER --drain node/worker-1 --drain worker-1",
			"order --class h200 -n tenant-blue CLUSTER --drain worker-9",
		},
		"vm": {
			"vm idle -n tenant-blue CLUSTER -o wide",
			"vm runner -n tenant-acme CLUSTER -o wide",
			"vm runner -n tenant-acme CLUSTER --drain worker-1",
			"vm vm/runner -n tenant-acme CLUSTER --drain nodes/worker-1",
			"vm runner -n tenant-acme CLUSTER --drain worker-2",
			"vm runner -n tenant-acme CLUSTER -f roomy.yaml --drain worker-1 -o json",
			"vm new -n tenant-blue CLUSTER -f fits.yaml -o wide",
			"vm new -n tenant-acme-dev CLUSTER -f fits.yaml",
			"vm new -n tenant-blue CLUSTER -f two-nodes.yaml",
			"vm new -n tenant-blue CLUSTER -f instancetype.yaml",
			"vm alone -n tenant-blue CLUSTER -f instance-volume.yaml -f volume.yaml -o wide",
		},
		"vm-refused": {
			"vm new -n tenant-blue CLUSTER -f taint.yaml -o wide",
			"vm new -n tenant-blue CLUSTER -f selector.yaml -o wide",
			"vm new -n tenant-blue CLUSTER -f memory.yaml -o wide",
			"vm new -n tenant-blue CLUSTER -f cpu.yaml -o wide",
			"vm new -n tenant-blue CLUSTER -f two-classes.yaml",
			"vm new -n tenant-acme CLUSTER -f two-nodes.yaml",
			"vm new -n tenant-blue CLUSTER -f malformed.yaml",
			"vm new -n tenant-blue CLUSTER -f unknown.yaml",
			"vm new -n tenant-blue CLUSTER -f unlabelled.yaml",
			"vm alone -n tenant-blue CLUSTER -f instance.yaml",
		},
		"drain": {
			"drain worker-1 CLUSTER",
			"drain worker-1 CLUSTER -f roomy.yaml",
			"drain worker-2 CLUSTER -o json",
			"drain worker-2 worker-1 CLUSTER -o yaml",
			"drain worker-2 CLUSTER -f alone-runs.yaml",
			"drain node/worker-4 CLUSTER",
			"drain worker-9 CLUSTER",
		},
		"usage": {
			"", "-h", "nothing", "order CLUSTER", "order --class h200 --count 0 CLUSTER", "order --class h200 --times 0 CLUSTER", "order --class h200 CLUSTER --context x", "order --class h200 -f fits.yaml", "drain worker-1 -f fits.yaml",
			"vm", "vm tenant-blue/idle CLUSTER", "vm node/idle CLUSTER", "vm vm/ CLUSTER", "vm new -n nowhere CLUSTER -f fits.yaml", "order --class h200 CLUSTER --drain vm/x", "drain node/ CLUSTER", "vm nobody -n tenant-blue CLUSTER", "vm plain -n tenant-blue CLUSTER -f unlabelled.yaml", "vm CLUSTER", "drain", "drain worker-1 CLUSTER -o name",
		},
	}
	for name, lines := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for _, line := range lines {
				line = strings.ReplaceAll(line, "CLUSTER", "-f cluster.yaml")
				code, stdout, stderr := run(t, strings.Fields("simulate "+strings.ReplaceAll(line, "-f ", "-f testdata/simulate/"))...)
				got.WriteString("$ gpuctl simulate " + line + "\n" + stdout)
				if stderr != "" {
					got.WriteString("--- stderr\n" + stderr)
				}
				got.WriteString("--- exit code " + string(rune('0'+code)) + "\n")
			}
			compareText(t, "simulate-"+name, got.String())
		})
	}
}

// TestSimulateBundle says of a bundle what it does not have.
func TestSimulateBundle(t *testing.T) {
	file := packed(t, ordersFile, func(text string) string {
		return strings.Replace(text, `count: 16}`, `count: 2}`, 1)
	})
	var got strings.Builder
	for _, line := range []string{"order --class h200 -n tenant-blue", "vm good -n tenant-acme", "vm garbled -n tenant-blue", "drain worker-1"} {
		code, stdout, stderr := run(t, append(strings.Fields("simulate "+line), "-f", file)...)
		got.WriteString("$ gpuctl simulate " + line + "\n" + stdout + stderr + "--- exit code " + string(rune('0'+code)) + "\n")
	}
	compareText(t, "simulate-bundle", got.String())
}
