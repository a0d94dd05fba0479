package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestStarts keeps what is said of VMs that name devices.
func TestStarts(t *testing.T) {
	t.Setenv("KUBECONFIG", "/nonexistent")
	unlisted := func(text string) string {
		return strings.Replace(text, "resourceName: nvidia.com/GH100_H200_SXM_141GB, externalResourceProvider", "resourceName: nvidia.com/H200, externalResourceProvider", 1)
	}
	unserved := func(text string) string {
		text = strings.Replace(text, `requests.nvidia.com/GH100_H200_SXM_141GB: "14"`, `requests.nvidia.com/GH100_H200_SXM_141GB: "140"`, 1)
		return strings.ReplaceAll(text, `allocatable: {nvidia.com/GH100_H200_SXM_141GB: "8"}`, `allocatable: {nvidia.com/GH100_H200_SXM_141GB: "0"}`)
	}
	lost := func(text string) string {
		return strings.Replace(text, `units: 2, since: "2026-03-01T08:00:01.000000Z"}`, `units: 2, since: "2026-03-01T08:00:01.000000Z", lostSince: "2026-03-01T11:30:00.000000Z"}`, 1)
	}
	tests := map[string]struct {
		change func(string) string
		lines  []string
	}{
		"well":       {asIs, []string{"vm/trainer -n tenant-acme", "vm/ready -n tenant-acme", "vm/stopped -n tenant-acme", "vm/coming -n tenant-acme", "vm/soon -n tenant-acme", "vm/changed -n tenant-acme"}},
		"order":      {asIs, []string{"vm/second -n tenant-acme", "vm/thief -n tenant-acme", "vm/late -n tenant-acme", "vm/rival -n tenant-acme", "vm/blocked -n tenant-acme"}},
		"books":      {asIs, []string{"vm/large -n tenant-acme-dev", "vm/classless -n tenant-acme"}},
		"words":      {asIs, []string{"vm/picky -n tenant-acme", "vm/busy -n tenant-acme", "vm/early -n tenant-acme", "vm/again -n tenant-acme"}},
		"shape":      {asIs, []string{"vm/beside -n tenant-acme"}},
		"launchers":  {asIs, []string{"vm/refused -n tenant-acme", "vm/unplaced -n tenant-acme", "vm/wrong -n tenant-acme"}},
		"table":      {unlisted, []string{"vm/ready -n tenant-acme"}},
		"leaderless": {leaderless, []string{"vm/ready -n tenant-acme", "vm/trainer -n tenant-acme", "vm/stopped -n tenant-acme"}},
		"lost":       {lost, []string{"vm/trainer -n tenant-acme"}},
		"unserved":   {unserved, []string{"vm/large -n tenant-acme-dev"}},
		"cluster":    {asIs, []string{""}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			compareText(t, "starts-"+name, told(t, "testdata/starts/cluster.yaml", tc.change, tc.lines))
		})
	}
}

// told packs a scene and returns what diagnose says of it.
func told(t *testing.T, scene string, change func(string) string, lines []string) string {
	t.Helper()
	file := packed(t, scene, change)
	var got strings.Builder
	for _, line := range lines {
		code, stdout, stderr := run(t, append([]string{"diagnose", "-f", file}, strings.Fields(line)...)...)
		got.WriteString("$ gpuctl diagnose " + line + "\n" + stdout)
		if stderr != "" {
			got.WriteString("--- stderr\n" + stderr)
		}
		got.WriteString("--- exit code " + string(rune('0'+code)) + "\n")
	}
	return strings.ReplaceAll(got.String(), file, "SCENE")
}

// Of files that have a VM and its Events alone, what gpuctl has said is passed on, and
// nothing else is concluded.
func TestStartsOfFiles(t *testing.T) {
	data, err := os.ReadFile("testdata/starts/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var only []string
	for doc := range strings.SplitSeq(string(data), "---\n") {
		if strings.Contains(doc, "kind: VirtualMachine\n") || strings.Contains(doc, "kind: Event\n") {
			only = append(only, doc)
		}
	}
	file := filepath.Join(t.TempDir(), "vms.yaml")
	if err := os.WriteFile(file, []byte(strings.Join(only, "---\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, vm := range []string{"second", "busy", "ready"} {
		code, stdout, stderr := run(t, "diagnose", "-f", file, "vm/"+vm, "-n", "tenant-acme")
		got.WriteString(stdout + stderr + "--- exit code " + string(rune('0'+code)) + "\n")
	}
	compareText(t, "starts-files", got.String())
}
