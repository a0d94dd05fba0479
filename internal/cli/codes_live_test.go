package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/test/fakesys"
)

// answers are an API server's: "GET /path" → what it says; what begins with a number
// is a refusal. "keep" takes what is put there for the next GET, "drop" only says so.
// Other lists are empty.
type answers map[string]string

// serve starts an API server and returns the kubeconfig that leads to it.
func (a answers) serve(t *testing.T) (kubeconfig string) {
	t.Helper()
	a = maps.Clone(a)
	var mu sync.Mutex
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		text, ok := a[r.Method+" "+r.URL.Path]
		var code int
		var message string
		switch n, _ := fmt.Sscanf(text, "%d", &code); {
		case text == "keep" || text == "drop":
			body, _ := io.ReadAll(r.Body)
			if text == "keep" {
				a["GET "+r.URL.Path] = string(body)
			}
			text = string(body)
		case !ok && r.Method == http.MethodGet:
			text = discoveryOf(r.URL.Path)
		case n == 1:
			_, message, _ = strings.Cut(text, " ")
			status := map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": "Forbidden", "message": message}
			w.WriteHeader(code)
			_ = json.NewEncoder(w).Encode(status)
			return
		}
		fmt.Fprint(w, text)
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: u}}], clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// discoveryOf says what a small server serves; any other path is an empty list.
func discoveryOf(path string) string {
	resources := func(version string, kinds ...string) string {
		var out []string
		for _, kind := range kinds {
			out = append(out, fmt.Sprintf(`{"name":%q,"kind":%q,"namespaced":%t,"verbs":["get","list"]}`, strings.ToLower(kind)+"s", kind, kind != "Node"))
		}
		return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q,"resources":[%s]}`, version, strings.Join(out, ","))
	}
	switch path {
	case "/api":
		return `{"kind":"APIVersions","versions":["v1"]}`
	case "/apis":
		return `{"kind":"APIGroupList","groups":[{"name":"kubevirt.io","versions":[{"groupVersion":"kubevirt.io/v1","version":"v1"}],"preferredVersion":{"groupVersion":"kubevirt.io/v1","version":"v1"}}]}`
	case "/api/v1":
		return resources("v1", "Node", "Pod", "Event")
	case "/apis/kubevirt.io/v1":
		return resources("kubevirt.io/v1", "KubeVirt", "VirtualMachine", "VirtualMachineInstance")
	}
	for resource, kind := range map[string]string{
		"/virtualmachineinstances": `"VirtualMachineInstanceList","apiVersion":"kubevirt.io/v1"`, "/daemonsets": `"DaemonSetList","apiVersion":"apps/v1"`,
		"/pods": `"PodList","apiVersion":"v1"`, "/leases": `"LeaseList","apiVersion":"coordination.k8s.io/v1"`,
	} {
		if strings.HasSuffix(path, resource) {
			return `{"kind":` + kind + `,"metadata":{"resourceVersion":"1"},"items":[]}`
		}
	}
	return `{"kind":"List","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`
}

const permitsH200 = `apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata: {name: kubevirt, namespace: kubevirt}
spec:
  configuration:
    developerConfiguration: {featureGates: [HostDevices]}
    permittedHostDevices:
      pciHostDevices: [{pciVendorSelector: "10DE:2335", resourceName: nvidia.com/GH100_H200_SXM_141GB, externalResourceProvider: true}]
status: {phase: Deployed}
`

const waitingInstance = `{"kind":"VirtualMachineInstanceList","apiVersion":"kubevirt.io/v1","items":[{"metadata":{"namespace":"tenant","name":"trainer"},
"spec":{"domain":{"devices":{"gpus":[{"name":"gpu1","deviceName":"nvidia.com/GH100_H200_SXM_141GB"}]}}},
"status":{"phase":"Pending","conditions":[{"type":"Synchronized","status":"False","reason":"FailedCreate","message":"GPU x is not permitted in permittedHostDevices configuration"}]}}]}`

// TestLiveCodes raises what takes an API server's answers: GPU0103, GPU0104, GPU0323
// and GPU0324 after a write, GPU0130 on a survey.
func TestLiveCodes(t *testing.T) {
	const (
		probe     = "POST /apis/kubevirt.io/v1/namespaces/kubevirt/virtualmachineinstances"
		instances = "GET /apis/kubevirt.io/v1/virtualmachineinstances"
		touch     = "PATCH /apis/kubevirt.io/v1/namespaces/tenant/virtualmachineinstances/trainer"
		pods      = "GET /api/v1/pods"
		instance  = `{"kind":"VirtualMachineInstance","apiVersion":"kubevirt.io/v1","metadata":{"name":"x"}}`
	)
	tests := map[string]struct {
		answers answers
		survey  bool
		want    []diagnose.Code
	}{
		"all is well":           {answers: answers{probe: instance}},
		"the gate is closed":    {answers: answers{probe: "403 Host Devices feature gate is not enabled in kubevirt-config"}, want: []diagnose.Code{"GPU0323"}},
		"nobody may ask":        {answers: answers{probe: "403 you may not create instances"}, want: []diagnose.Code{"GPU0324"}},
		"an instance waits":     {answers: answers{probe: instance, instances: waitingInstance, touch: instance}, want: []diagnose.Code{"GPU0103"}},
		"it may not be touched": {answers: answers{probe: instance, instances: waitingInstance, touch: "403 a policy says no"}, want: []diagnose.Code{"GPU0104"}},
		"it has gone meanwhile": {answers: answers{probe: instance, instances: strings.Replace(waitingInstance, `"Pending"`, `"Running"`, 1), touch: "403 a policy says no"}},
		"all may be read":       {survey: true, answers: answers{}},
		"an event outlives its VM": {survey: true, answers: answers{"GET /api/v1/events": `{"kind":"EventList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"e","namespace":"t"},"type":"Warning","reason":"FailedCreate",
"involvedObject":{"kind":"VirtualMachineInstance","namespace":"t","name":"gone"},"message":"GPU nvidia.com/X is not permitted in permittedHostDevices configuration"}]}`}},
		"pods may not be listed": {survey: true, answers: answers{pods: "403 pods is forbidden"}, want: []diagnose.Code{"GPU0130"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kubeconfig := tt.answers.serve(t)
			var found []diagnose.Finding
			if tt.survey {
				_, found, _ = diagnoseJSON(t, "diagnose", "--kubeconfig", kubeconfig)
			} else {
				found = afterWrite(t, kubeconfig)
			}
			var got []diagnose.Code
			for _, f := range found {
				got = append(got, f.Code)
			}
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v:\n%s", got, tt.want, list(found))
			}
		})
	}
}

// TestWireCodes raises what wire says of a cluster that is not as it should be:
// GPU0101, GPU0106, GPU0107, GPU0325.
func TestWireCodes(t *testing.T) {
	const (
		path     = " /apis/kubevirt.io/v1/namespaces/kubevirt/kubevirts/kubevirt"
		list     = "GET /apis/kubevirt.io/v1/kubevirts"
		nodes    = "GET /api/v1/nodes"
		deployed = `{"apiVersion":"kubevirt.io/v1","kind":"KubeVirt","metadata":{"name":"kubevirt","namespace":"kubevirt","resourceVersion":"7"},"spec":{"configuration":{}},"status":{"phase":"Deployed"}}`
		wired    = `{"apiVersion":"kubevirt.io/v1","kind":"KubeVirt","metadata":{"name":"kubevirt","namespace":"kubevirt","resourceVersion":"7","annotations":{"gpuctl.dev/wired":"{\"version\":1,\"gate\":true}"}},"spec":{"configuration":{"developerConfiguration":{"featureGates":["HostDevices"]}}},"status":{"phase":"Deployed"}}`
		probe    = "POST /apis/kubevirt.io/v1/namespaces/kubevirt/virtualmachineinstances"
		serving  = `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[{"metadata":{"name":"worker-1"},"status":{"allocatable":{"nvidia.com/GH100_H200_SXM_141GB":"1"}}}]}`
	)
	items := func(object string) string {
		return `{"kind":"KubeVirtList","apiVersion":"kubevirt.io/v1","metadata":{},"items":[` + object + `]}`
	}
	healthy := func(more answers) answers {
		a := answers{list: items(deployed), "GET" + path: deployed, "PUT" + path: "keep", probe: `{"kind":"VirtualMachineInstance","apiVersion":"kubevirt.io/v1","metadata":{"name":"x"}}`, nodes: serving}
		maps.Copy(a, more)
		return a
	}
	tests := map[string]struct {
		code  string
		args  string
		raise answers
		near  answers
	}{
		"KubeVirt is not there in time": {"GPU0101", "wire --wait 1s --strict=false", healthy(answers{list: items("")}), healthy(nil)},
		"no node has a GPU":             {"GPU0106", "wire", healthy(answers{nodes: strings.Replace(serving, "nvidia.com/", "example.com/", 1)}), healthy(nil)},
		"nothing can be taken away": {
			"GPU0107", "wire --remove --strict=false",
			healthy(answers{list: items(wired), "GET" + path: wired, "PUT" + path: "403 the KubeVirt CR is frozen"}), healthy(answers{list: items(wired), "GET" + path: wired}),
		},
		"the write does not stick": {"GPU0325", "wire", healthy(answers{"PUT" + path: "drop"}), healthy(nil)},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, _, stderr := run(t, append(strings.Fields(tt.args), "--kubeconfig", tt.raise.serve(t))...)
			if !strings.Contains(stderr, tt.code) {
				t.Errorf("stderr lacks %s:\n%s", tt.code, stderr)
			}
			code, _, stderr := run(t, append(strings.Fields(tt.args), "--kubeconfig", tt.near.serve(t))...)
			if code != 0 || strings.Contains(stderr, tt.code) {
				t.Errorf("the near miss: exit %d, stderr:\n%s", code, stderr)
			}
		})
	}
}

// afterWrite does what wire does when the plan is written.
func afterWrite(t *testing.T, kubeconfig string) []diagnose.Finding {
	t.Helper()
	client, err := cluster.Connect(cluster.Options{Kubeconfig: kubeconfig})
	if err != nil {
		t.Fatal(err)
	}
	docs, _, err := manifest.Parse("kubevirt.yaml", []byte(permitsH200))
	if err != nil {
		t.Fatal(err)
	}
	l := &live{client: client, flags: &wireFlags{}, patience: 300 * time.Millisecond}
	in := patch.Input{Target: patch.Target{Document: docs[0]}}
	found, err := l.after(t.Context(), in, patch.Result{Object: docs[0].Object})
	if refusal, ok := errors.AsType[*patch.Refusal](err); ok {
		return append(found, refusal.Findings...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// TestSummaryIsNotPassedOn has a termination log that cannot be written, GPU0108, and
// one that can.
func TestSummaryIsNotPassedOn(t *testing.T) {
	for name, tt := range map[string]struct {
		dir  string
		want bool
	}{
		"a folder that is not there": {"missing/log", true},
		"a folder that is":           {"log", false},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			flags := &wireFlags{}
			flags.terminationLog = filepath.Join(t.TempDir(), tt.dir)
			l := &live{s: &streams{out: &stderr, err: &stderr}, flags: flags}
			l.mirror(t.Context(), nil)
			if got := strings.Contains(stderr.String(), "GPU0108"); got != tt.want {
				t.Errorf("GPU0108 is %v, want %v:\n%s", got, tt.want, stderr.String())
			}
		})
	}
}

// TestMissingDeviceNode takes /dev/vfio/40 from a host whose card is bound, GPU0214,
// and that of the group beside it.
func TestMissingDeviceNode(t *testing.T) {
	for gone, want := range map[string]bool{"40": true, "41": false} {
		t.Run("group "+gone, func(t *testing.T) {
			h := gpu.Host{IOMMU: gpu.Present, Functions: []gpu.Function{
				{Address: gpu.Address{Bus: 0x18}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(40), VFIONode: gpu.Present},
				{Address: gpu.Address{Bus: 0x2a}, ID: gpu.NVIDIA(0x2335), Class: 0x030200, Driver: "vfio-pci", Group: gpu.InGroup(41), VFIONode: gpu.Present},
			}}
			root := fakesys.New(t, h)
			if err := os.Remove(filepath.Join(root, "dev/vfio", gone)); err != nil {
				t.Fatal(err)
			}
			found := findingsOf(t, "diagnose --root worker-1="+root)
			got := slices.ContainsFunc(found, func(f diagnose.Finding) bool {
				return f.Code == "GPU0214" && f.Object == "node/worker-1 0000:18:00.0"
			})
			if got != want {
				t.Errorf("GPU0214 on 0000:18:00.0 is %v, want %v:\n%s", got, want, list(found))
			}
		})
	}
}
