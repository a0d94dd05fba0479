package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// wireCheck is one run of wire on a case from the field, and what must hold.
type wireCheck struct {
	Name       string      `json:"name"`
	BareCR     bool        `json:"bare_cr"` // a Deployed KubeVirt with empty configuration is put before args
	Args       []string    `json:"args"`    // relative to the case's folder
	Exit       int         `json:"exit"`
	Target     string      `json:"target"`
	Present    []entryLike `json:"present"`
	Absent     []entryLike `json:"absent"`
	Added      *int        `json:"added"`
	Gate       string      `json:"gate"`
	Unchanged  bool        `json:"unchanged"`
	Mention    []string    `json:"mention"` // regular expressions over stderr
	NotMention []string    `json:"not_mention"`
}

// entryLike matches entries by the fields it has.
type entryLike struct {
	Selector     string `json:"selector"`
	ResourceName string `json:"resourceName"`
	External     any    `json:"external"` // true, false, "absent", or nil
}

const bareCR = `apiVersion: kubevirt.io/v1
kind: KubeVirt
metadata:
  name: kubevirt
  namespace: kubevirt
spec:
  configuration: {}
status:
  phase: Deployed
`

func TestCases(t *testing.T) {
	folders, err := filepath.Glob("testdata/cases/*/checks.yaml")
	if err != nil || len(folders) < 47 {
		t.Fatalf("found %d cases, %v", len(folders), err)
	}
	runs := 0
	for _, file := range folders {
		for _, check := range readChecks(t, file) {
			runs++
			dir := filepath.Dir(file)
			t.Run(filepath.Base(dir)+" "+check.Name, func(t *testing.T) { runCase(t, dir, check) })
		}
	}
	if runs < 47 {
		t.Errorf("%d runs of wire, want at least 47", runs)
	}
}

// readChecks reads the wire part of a checks.yaml.
func readChecks(t *testing.T, file string) []wireCheck {
	t.Helper()
	return readPart[wireCheck](t, file, "wire")
}

// readPart reads one part of a checks.yaml: one run, or a list.
func readPart[Check any](t *testing.T, file, name string) []Check {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var parts map[string]any
	if err := yaml.Unmarshal(data, &parts); err != nil {
		t.Fatal(err)
	}
	part, ok := parts[name]
	if !ok {
		return nil
	}
	if _, one := part.(map[string]any); one {
		part = []any{part}
	}
	text, err := json.Marshal(part)
	if err != nil {
		t.Fatal(err)
	}
	var out []Check
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&out); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return out
}

func runCase(t *testing.T, dir string, check wireCheck) {
	t.Helper()
	args := check.args(t)
	t.Chdir(dir)
	code, stdout, stderr := run(t, append([]string{"wire", "--dry-run", "-o", "yaml"}, args...)...)
	if code != check.Exit {
		t.Fatalf("exit %d, want %d\n%s", code, check.Exit, stderr)
	}
	for _, p := range check.Mention {
		if !pattern(t, p).MatchString(stderr) {
			t.Errorf("stderr does not mention %s:\n%s", p, stderr)
		}
	}
	for _, p := range check.NotMention {
		if m := pattern(t, p).FindString(stderr); m != "" {
			t.Errorf("stderr mentions %q (%s):\n%s", m, p, stderr)
		}
	}
	if check.Exit != 0 {
		if stdout != "" || stderr == "" {
			t.Errorf("a refusal has stdout %q, stderr %q", stdout, stderr)
		}
		return
	}
	source, before := input(t, args, check.Target)
	after := plannedObject(t, stdout, check.Target)
	checkPlan(t, check, before, after)
	checkAgain(t, args, source, before, stdout, after)
}

// args returns the run's arguments, with the bare CR where it wants one.
func (c wireCheck) args(t *testing.T) []string {
	t.Helper()
	if !c.BareCR {
		return c.Args
	}
	bare := filepath.Join(t.TempDir(), "bare.yaml")
	if err := os.WriteFile(bare, []byte(bareCR), 0o600); err != nil {
		t.Fatal(err)
	}
	return append([]string{"-f", bare}, c.Args...)
}

// run runs gpuctl and returns exit code, stdout and stderr.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, err bytes.Buffer
	code = Main("gpuctl", args, strings.NewReader(""), &out, &err)
	return code, out.String(), err.String()
}

// pattern compiles a regular expression; the look-arounds that the cases use are
// written out, since Go has none.
func pattern(t *testing.T, p string) *regexp.Regexp {
	t.Helper()
	plain := strings.NewReplacer(
		`(?<!\w)`, `(?:^|\W)`, `(?!\w)`, `(?:$|\W)`,
		`(?<![\w./-])`, `(?:^|[^\w./-])`, `(?![\w./-])`, `(?:$|[^\w./-])`,
	).Replace(p)
	re, err := regexp.Compile(plain)
	if err != nil {
		t.Fatalf("pattern %s: %v", p, err)
	}
	return re
}

// input returns the target among the -f files, and its file.
func input(t *testing.T, args []string, kind string) (string, manifest.Document) {
	t.Helper()
	for i := 0; i+1 < len(args); i += 2 {
		if args[i] != "-f" {
			continue
		}
		docs, _, err := manifest.Load(nil, args[i+1])
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range docs {
			if d.Kind() == kind {
				return args[i+1], d
			}
		}
	}
	t.Fatalf("no %s among %v", kind, args)
	return "", manifest.Document{}
}

func plannedObject(t *testing.T, stdout, kind string) manifest.Object {
	t.Helper()
	docs, skipped, err := manifest.Parse("stdout", []byte(stdout))
	if err != nil || len(docs) != 1 || len(skipped) != 0 || docs[0].Kind() != kind {
		t.Fatalf("stdout is not exactly one %s: %d documents, %v, %v", kind, len(docs), skipped, err)
	}
	return docs[0].Object
}

// entries returns the PCI entries of a KubeVirt or HyperConverged object, and
// the name of their selector.
func entries(obj manifest.Object) (list []any, selector string) {
	selector = "pciVendorSelector"
	path := manifest.Path{"spec", "configuration", "permittedHostDevices", "pciHostDevices"}
	if obj["kind"] == patch.KindHyperConverged {
		selector = "pciDeviceSelector"
		path = manifest.Path{"spec", "permittedHostDevices", "pciHostDevices"}
		if obj["apiVersion"] == "hco.kubevirt.io/v1" {
			path = manifest.Path{"spec", "virtualization", "permittedHostDevices", "pciHostDevices"}
		}
	}
	v, _ := manifest.Lookup(obj, path)
	list, _ = v.([]any)
	return list, selector
}

func gates(obj manifest.Object) []any {
	v, _ := manifest.Lookup(obj, manifest.Path{"spec", "configuration", "developerConfiguration", "featureGates"})
	list, _ := v.([]any)
	return list
}

func (e entryLike) matches(item any, key string) bool {
	m, _ := item.(map[string]any)
	selector, _ := m[key].(string)
	external, has := m["externalResourceProvider"]
	return (e.Selector == "" || strings.EqualFold(selector, e.Selector)) &&
		(e.ResourceName == "" || m["resourceName"] == e.ResourceName) &&
		(e.External == nil || e.External == "absent" && !has || has && e.External == external)
}

func checkPlan(t *testing.T, check wireCheck, in manifest.Document, after manifest.Object) {
	t.Helper()
	before := in.Object
	had, key := entries(before)
	have, _ := entries(after)
	if len(have) < len(had) || !reflect.DeepEqual(had, have[:len(had):len(had)]) && len(had) > 0 {
		t.Fatalf("existing entries changed: %v\n%v", had, have)
	}
	if diff := cmp.Diff(withoutNulls(before), withoutNulls(stripped(t, before, after))); diff != "" {
		t.Errorf("not kept (-before +after without additions):\n%s", diff)
	}
	checkAdded(t, had, have[len(had):], key)
	for _, want := range check.Present {
		if !slices.ContainsFunc(have, func(e any) bool { return want.matches(e, key) }) {
			t.Errorf("missing entry %+v in %v", want, have)
		}
	}
	for _, bad := range check.Absent {
		if slices.ContainsFunc(have, func(e any) bool { return bad.matches(e, key) }) {
			t.Errorf("entry that must not be there: %+v in %v", bad, have)
		}
	}
	if check.Added != nil && len(have)-len(had) != *check.Added {
		t.Errorf("%d entries added, want %d", len(have)-len(had), *check.Added)
	}
	if check.Unchanged && !reflect.DeepEqual(before, after) {
		t.Errorf("changed:\n%s", cmp.Diff(before, after))
	}
	checkGate(t, check.Gate, gates(before), gates(after))
}

func checkGate(t *testing.T, want string, before, after []any) {
	t.Helper()
	ok := map[string]bool{
		"":          true,
		"present":   slices.Contains(after, any("HostDevices")) && reflect.DeepEqual(slices.DeleteFunc(slices.Clone(after), func(g any) bool { return g == "HostDevices" && !slices.Contains(before, g) }), append([]any{}, before...)),
		"absent":    !slices.Contains(after, any("HostDevices")),
		"unchanged": reflect.DeepEqual(before, after),
	}[want]
	if !ok {
		t.Errorf("gate is not %s: before %v, after %v", want, before, after)
	}
}

var goodSelector = regexp.MustCompile(`^[0-9A-F]{4}:[0-9A-F]{4}$`)

// checkAdded applies the house rules for every entry that gpuctl adds.
func checkAdded(t *testing.T, had, added []any, key string) {
	t.Helper()
	for _, e := range added {
		m, _ := e.(map[string]any)
		selector, _ := m[key].(string)
		name, _ := m["resourceName"].(string)
		if !goodSelector.MatchString(selector) || len(m) != 3 || m["externalResourceProvider"] != true {
			t.Errorf("added entry %v is not an upper-case selector, a name and externalResourceProvider: true", e)
		}
		if n := gpu.ResourceName(name); n.Check() != nil || n.IsContainer() {
			t.Errorf("added name %q must not be written", name)
		}
		if slices.ContainsFunc(had, func(o any) bool { return entryLike{Selector: selector, ResourceName: name}.matches(o, key) }) {
			t.Errorf("%s as %s added although it is there", selector, name)
		}
	}
}

// stripped takes gpuctl's additions out of the planned object by planning their
// removal, so that what is left must be the input.
func stripped(t *testing.T, before, after manifest.Object) manifest.Object {
	t.Helper()
	doc := manifest.Live("planned", after)
	result, err := patch.Remove(patch.Input{Target: patch.Target{Document: doc}})
	if err != nil {
		t.Fatal(err)
	}
	if _, recorded := manifest.Lookup(before, manifest.Path{"metadata", "annotations", patch.RecordKey}); recorded {
		t.Fatal("the input carries a record already")
	}
	return result.Object
}

// withoutNulls drops keys that hold null: they are the same as no key.
func withoutNulls(v any) any {
	switch t := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for k, x := range maps.All(t) {
			if x != nil {
				out[k] = withoutNulls(x)
			}
		}
		return out
	case []any:
		out := make([]any, len(t))
		for i, x := range t {
			out[i] = withoutNulls(x)
		}
		return out
	default:
		return v
	}
}

// checkAgain runs wire on its own output: nothing may change.
func checkAgain(t *testing.T, args []string, source string, before manifest.Document, stdout string, after manifest.Object) {
	t.Helper()
	docs, _, err := manifest.Load(nil, source)
	if err != nil {
		t.Fatal(err)
	}
	text := stdout
	for _, d := range docs {
		if reflect.DeepEqual(d.Object, before.Object) {
			continue
		}
		out, err := d.Text(nil)
		if err != nil {
			t.Fatal(err)
		}
		text += "---\n" + string(out)
	}
	again := filepath.Join(t.TempDir(), "again.yaml")
	if err := os.WriteFile(again, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	args = slices.Clone(args)
	args[slices.Index(args, source)] = again
	code, out, stderr := run(t, append([]string{"wire", "--dry-run", "-o", "yaml"}, args...)...)
	if code != 0 {
		t.Fatalf("on its own output: exit %d\n%s", code, stderr)
	}
	if diff := cmp.Diff(after, plannedObject(t, out, fmt.Sprint(after["kind"]))); diff != "" {
		t.Errorf("run on its own output it changes (-first +second):\n%s", diff)
	}
	if out != stdout {
		t.Errorf("run on its own output the text changes:\n%s", cmp.Diff(stdout, out))
	}
}
