package e2e

import (
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"helm.sh/helm/v3/pkg/action"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/cli"
)

// The release is one that helm sees, as helm's own command would, and goes on with.
func TestHelmSeesTheRelease(t *testing.T) {
	s := newStage(t)
	s.node("worker-1", 1, "vfio-pci", 1)
	s.install("--set", "agent.interval=20s")
	settings := cli.New()
	settings.KubeConfig = s.Kubeconfig()
	settings.SetNamespace(s.namespace)
	config := new(action.Configuration)
	if err := config.Init(settings.RESTClientGetter(), s.namespace, os.Getenv("HELM_DRIVER"), t.Logf); err != nil {
		t.Fatal(err)
	}
	list, err := action.NewList(config).Run()
	if err != nil || len(list) != 1 || list[0].Name != s.release || list[0].Info.Status != "deployed" {
		t.Fatalf("helm lists %v, %v", list, err)
	}
	chart, err := loader.Load("../../charts/gpu-operator-hooks")
	if err != nil {
		t.Fatal(err)
	}
	same := untouched(t, s.Cluster)
	upgrade := action.NewUpgrade(config)
	upgrade.Namespace, upgrade.ReuseValues, upgrade.Timeout = s.namespace, true, time.Minute
	done, err := upgrade.Run(s.release, chart, nil)
	if err != nil || done.Version != 2 {
		t.Fatalf("helm upgrade: %+v, %v", done, err)
	}
	same()
	// And the other way round: gpuctl keeps what the values are.
	if code, _, stderr := s.gpuctl("upgrade"); code != 0 || !strings.Contains(stderr, "revision 3") {
		t.Fatalf("exit %d\n%s", code, stderr)
	}
	got, err := action.NewGetValues(config).Run(s.release)
	if agent, _ := got["agent"].(map[string]any); err != nil || agent["interval"] != "20s" {
		t.Errorf("the values are %v, %v", got, err)
	}
	uninstall := action.NewUninstall(config)
	uninstall.Timeout = time.Minute
	if _, err := uninstall.Run(s.release); err != nil {
		t.Errorf("helm uninstall: %v", err)
	}
	if got := permitted(kubeVirt(t, s.Cluster)); len(got) != 0 {
		t.Errorf("permitted %v after helm uninstall", got)
	}
}

// A dry run writes nothing, and prints hooks as well.
func TestInstallDryRun(t *testing.T) {
	s := newStage(t)
	code, stdout, stderr := s.gpuctl("install", "--dry-run")
	for _, want := range []string{"kind: DaemonSet", "kind: CustomResourceDefinition", "name: gpu-operator-hooks-wire", "name: gpu-operator-hooks-unwire"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the manifest lacks %q", want)
		}
	}
	if code != 0 {
		t.Errorf("exit %d\n%s", code, stderr)
	}
	if code, _, stderr := s.gpuctl("upgrade"); code != 1 || !strings.Contains(stderr, "no such release") || !strings.Contains(stderr, "gpuctl install") {
		t.Errorf("upgrade: exit %d\n%s", code, stderr)
	}
	// Values from stdin, which can be read once only, reach the release.
	program, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	piped := exec.CommandContext(t.Context(), program, "install", "--dry-run", "-f", "-", "-n", s.namespace, "--kubeconfig", s.Kubeconfig())
	piped.Stdin = strings.NewReader("agent: {interval: 21s}\n")
	if out, err := piped.CombinedOutput(); err != nil || !strings.Contains(string(out), "--interval=21s") {
		t.Errorf("values from stdin: %v, and the manifest lacks --interval=21s", err)
	}
	// Values that cannot be meant are refused, and the key is named.
	if code, _, stderr := s.gpuctl("install", "--set", "gpu.variant=mig"); code != 1 || !strings.Contains(strings.ReplaceAll(stderr, "/", "."), "gpu.variant") {
		t.Errorf("a bad value: exit %d\n%s", code, stderr)
	}
}

// Who may not install is told what is missing before anything is written.
func TestInstallWithoutPermission(t *testing.T) {
	s := newStage(t)
	user := s.KubeconfigFor(s.User("intern"))
	code, _, stderr := gpuctlAs(user, "install", "-n", s.namespace)
	if code != 1 || !strings.Contains(stderr, "GPU0127") || !strings.Contains(stderr, "daemonsets.apps") {
		t.Errorf("exit %d\n%s", code, stderr)
	}
}
