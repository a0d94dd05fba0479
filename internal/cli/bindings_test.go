package cli

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// deviceRow makes a device of class h200 as a row has it. What is written after its name:
// the state; the VMI, with "+" where it has claimed the device; the node; how many devices
// have asked. A "-" is none.
func deviceRow(version, spec string) string {
	f := strings.Fields(spec)
	name, state, vmi, node, set := f[0], f[1], f[2], f[3], f[4]
	namespace, name, found := strings.Cut(name, "/")
	if !found {
		namespace, name = "acme", namespace
	}
	class, labels, origin := "h200", `{"team":"vision"}`, "Order"
	if strings.HasPrefix(name, "made") {
		class, labels, origin = "l40s", `{"gpuctl.dev/template-device":"true"}`, "Template"
	}
	status := fmt.Sprintf(`"state":%q,"origin":{"kind":%q}`, state, origin)
	if node != "-" {
		status += fmt.Sprintf(`,"placement":{"node":%q,"resourceName":"nvidia.com/X","units":2,"since":"2000-01-01T00:00:00.000000Z"}`, node)
	}
	if vmi != "-" {
		name, claimed := strings.CutSuffix(vmi, "+")
		uid := ""
		if claimed {
			uid = `,"vmiUID":"uid-` + name + `"`
		}
		status += fmt.Sprintf(`,"attachment":{"vmiName":%q%s,"requestID":"of-%s","since":"2000-01-01T00:00:00.000000Z"}`, name, uid, name)
		status += fmt.Sprintf(`,"bindRequest":{"requestID":"of-%s","requestedAt":"2000-01-01T00:00:00.000000Z","devices":%s}`, name, set)
	}
	return fmt.Sprintf(`{"cells":["x"],"object":{"kind":"GPUDevice","apiVersion":"gpuctl.dev/v1alpha1","metadata":{"name":%q,"namespace":%q,"uid":"%s/%s","resourceVersion":%q,"labels":%s},"spec":{"className":%q,"count":2},"status":{%s}}}`,
		name, namespace, namespace, name, version, labels, class, status)
}

func deviceTable(version string, devices ...string) string {
	var out []string
	for _, d := range devices {
		out = append(out, deviceRow(version, d))
	}
	return fmt.Sprintf(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q},"columnDefinitions":[{"name":"Name","type":"string"}],"rows":[%s]}`, version, strings.Join(out, ","))
}

// years is the age of what began in 2000.
var years = regexp.MustCompile(`\b\d\dy`)

// What bindings makes of devices.
func TestBindings(t *testing.T) {
	const asked = "namespaces/acme/gpudevices?limit=500"
	trainer := []string{"train-b Attached trainer+ n1 3", "train-a Attached trainer+ n1 3", "made-1 Attached trainer+ n1 3"}
	free := "free Held - n1 0"
	for name, tc := range map[string]struct {
		args    string
		answers []answer
		code    int
		stdout  string
		stderr  string
		asked   []string
	}{
		"one line a set, none for what nobody uses": {
			args: "", answers: []answer{{body: deviceTable("5", append(trainer, free, "x Held soon - 1", "y Bound next n2 1", "z Lost broken+ n3 2", "z2 Attached broken+ n3 2")...)}},
			stdout: `VM        DEVICES                  CLASS       UNITS   NODE     STATE      AGE
broken    z,z2                     h200        4       n3       Lost       AGE
next      y                        h200        2       n2       Bound      AGE
soon      x                        h200        2       <none>   Starting   AGE
trainer   made-1,train-a,train-b   h200,l40s   4,2     n1       Attached   AGE
`,
		},
		"a set of which a part is claimed is bound": {
			args: "trainer", answers: []answer{{body: deviceTable("5", "a Bound trainer n1 2", "b Attached trainer+ n1 2")}},
			stdout: "VM        DEVICES   CLASS   UNITS   NODE   STATE   AGE\ntrainer   a,b       h200    4       n1     Bound   AGE\n",
		},
		"of all namespaces": {
			args: "-A", answers: []answer{{body: deviceTable("5", "other/a Attached v+ n1 1", "a Attached v+ n1 1")}}, asked: []string{"gpudevices?limit=500"},
			stdout: "NAMESPACE   VM    DEVICES   CLASS   UNITS   NODE   STATE      AGE\nacme        v     a         h200    2       n1     Attached   AGE\nother       v     a         h200    2       n1     Attached   AGE\n",
		},
		"a set is whole, whichever of its devices has the labels": {
			args: "-l team=vision", answers: []answer{{body: deviceTable("5", append(trainer, "made-2 Attached other+ n1 1")...)}},
			stdout: "VM        DEVICES                  CLASS       UNITS   NODE   STATE      AGE\ntrainer   made-1,train-a,train-b   h200,l40s   4,2     n1     Attached   AGE\n",
		},
		"many devices": {
			args: "", answers: []answer{{body: deviceTable("5", "training-one Attached v+ n 4", "training-three Attached v+ n 4", "training-two Attached v+ n 4", "tz Attached v+ n 4")}},
			stdout: "VM    DEVICES                          CLASS   UNITS   NODE   STATE      AGE\nv     training-one,training-three,+2   h200    8       n      Attached   AGE\n",
		},
		"many devices, wide": {
			args: "-o wide", answers: []answer{{body: deviceTable("5", "training-one Attached v+ n 4", "training-three Attached v+ n 4", "training-two Attached v+ n 4", "tz Attached v+ n 4")}},
			stdout: "VM    DEVICES                                       CLASS   UNITS   NODE   STATE      AGE\nv     training-one,training-three,training-two,tz   h200    8       n      Attached   AGE\n",
		},
		"YAML": {
			args: "-o yaml", answers: []answer{{body: deviceTable("5", "made-1 Attached v+ n1 1", free)}},
			stdout: `bindings:
- devices:
  - class: l40s
    name: made-1
    node: n1
    resourceName: nvidia.com/X
    state: Attached
    template: true
    units: 2
  namespace: acme
  node: n1
  requestID: of-v
  since: "2000-01-01T00:00:00Z"
  state: Attached
  units: 2
  vmi: v
  vmiUID: uid-v
`,
		},
		"JSON of nothing": {args: "-o json", answers: []answer{{body: deviceTable("5", free)}}, stdout: "{\n  \"bindings\": []\n}\n", stderr: "there are no bindings in namespace acme\n"},
		"nothing":         {args: "", answers: []answer{{body: deviceTable("5", free)}}, stderr: "there are no bindings in namespace acme\n"},
		"a VM that has none": {
			args: "v nobody", answers: []answer{{body: deviceTable("5", "a Attached v+ n1 1")}}, code: 1,
			stdout: "VM    DEVICES   CLASS   UNITS   NODE   STATE      AGE\nv     a         h200    2       n1     Attached   AGE\n",
			stderr: "error: VM \"nobody\" has no devices; see why: gpuctl diagnose vm/nobody -n acme\n",
		},
		"a name and -A": {args: "v -A", code: 2, asked: []string{}, stderr: "error: a name is that of one namespace: leave out -A, and give the namespace by -n\n"},
		"the kind is not installed": {
			args: "", answers: []answer{{http.StatusNotFound, "404 page not found\n"}}, code: 1,
			stderr: "error: the kind is not installed: the cluster at SERVER:PORT does not serve gpudevices; who runs the cluster installs it with: gpuctl upgrade --set orders.enabled=true\n",
		},
		"a watch tells a set when it is whole, and when it is gone": {
			args: "-w",
			stdout: `VM    DEVICES   CLASS   UNITS   NODE     STATE      AGE
v     a,b       h200    4       <none>   Starting   AGE
v     a,b       h200    4       n1       Bound      AGE
v     a,b       h200    4       n1       Attached   AGE
v     a,b       h200    4       n1       Released   AGE
`,
			stderr: "there are no bindings in namespace acme\n",
			answers: []answer{
				{body: deviceTable("5", "a Held - n1 0", "b Held - n1 0")},
				{body: event("MODIFIED", deviceTable("6", "a Held v - 2")) + event("MODIFIED", deviceTable("7", "b Held v - 2")) +
					event("MODIFIED", deviceTable("8", "a Bound v n1 2")) + event("MODIFIED", deviceTable("9", "b Bound v n1 2")) +
					event("MODIFIED", deviceTable("10", "b Attached v+ n1 2")) + event("MODIFIED", deviceTable("11", "a Attached v+ n1 2")) +
					event("MODIFIED", deviceTable("12", "a Held - n1 0")) + event("MODIFIED", deviceTable("13", "b Held - n1 0"))},
			},
			asked: []string{asked, "namespaces/acme/gpudevices?resourceVersion=5&watch=true", "namespaces/acme/gpudevices?resourceVersion=13&watch=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &apiServer{t: t, answers: tc.answers, over: func() {}}
			code, stdout, stderr := s.shownWith(append([]string{"bindings"}, strings.Fields(tc.args)...)...)
			if diff := cmp.Diff(tc.stdout, years.ReplaceAllString(stdout, "AGE")); diff != "" || code != tc.code {
				t.Errorf("exit %d, want %d, stdout (-want +got):\n%s", code, tc.code, diff)
			}
			if diff := cmp.Diff(tc.stderr, regexp.MustCompile(`SERVER:\d+`).ReplaceAllString(stderr, "SERVER:PORT")); diff != "" {
				t.Errorf("stderr (-want +got):\n%s", diff)
			}
			want := tc.asked
			if want == nil {
				want = []string{asked}
			}
			if diff := cmp.Diff(want, append([]string{}, s.asked...)); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
		})
	}
}
