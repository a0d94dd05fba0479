package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// diagnoseCheck is one run of diagnose on a case from the field, and what must hold.
type diagnoseCheck struct {
	Name       string   `json:"name"`
	BareCR     bool     `json:"bare_cr"`
	Args       []string `json:"args"`
	Exit       any      `json:"exit"`    // a code, or a list of those that are allowed
	Mention    []string `json:"mention"` // over the findings and the notes
	NotMention []string `json:"not_mention"`
	NotError   []string `json:"not_error"` // over the findings of severity error
	First      string   `json:"first"`     // over the first finding
}

func TestDiagnoseCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*/checks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	runs := 0
	for _, file := range files {
		for _, check := range readDiagnoseChecks(t, file) {
			runs++
			t.Run(filepath.Base(filepath.Dir(file))+" "+check.Name, func(t *testing.T) { runDiagnoseCase(t, filepath.Dir(file), check) })
		}
	}
	if runs < 31 {
		t.Errorf("%d runs of diagnose, want at least 31", runs)
	}
}

func readDiagnoseChecks(t *testing.T, file string) []diagnoseCheck {
	t.Helper()
	return readPart[diagnoseCheck](t, file, "diagnose")
}

// allows reports whether an exit code is one of the check's.
func (c *diagnoseCheck) allows(code int) bool {
	if list, ok := c.Exit.([]any); ok {
		return slices.Contains(list, any(float64(code)))
	}
	return c.Exit == float64(code)
}

// said is all of a finding's text.
func said(f diagnose.Finding) string {
	return strings.Join([]string{string(f.Code), string(f.Severity), f.Object, f.Message, f.Hint}, "\n")
}

func runDiagnoseCase(t *testing.T, dir string, check diagnoseCheck) {
	t.Helper()
	args := append([]string{"diagnose"}, wireCheck{BareCR: check.BareCR, Args: check.Args}.args(t)...)
	t.Chdir(dir)
	code, findings, stderr := diagnoseJSON(t, args...)
	if !check.allows(code) {
		t.Errorf("exit %d, want %v", code, check.Exit)
	}
	var all, errors string
	for _, f := range findings {
		all += said(f) + "\n\n"
		if f.Severity == diagnose.Error {
			errors += said(f) + "\n\n"
		}
	}
	if (code == exitFound) != (errors != "") {
		t.Errorf("exit %d with errors %q", code, errors)
	}
	for _, p := range check.Mention {
		if !pattern(t, p).MatchString(all + stderr) {
			t.Errorf("not mentioned: %s in\n%s%s", p, all, stderr)
		}
	}
	for _, p := range check.NotMention {
		if m := pattern(t, p).FindString(all); m != "" {
			t.Errorf("mentions %q (%s) in\n%s", m, p, all)
		}
	}
	for _, p := range check.NotError {
		if m := pattern(t, p).FindString(errors); m != "" {
			t.Errorf("an error mentions %q (%s) in\n%s", m, p, errors)
		}
	}
	if check.First != "" && (len(findings) == 0 || !pattern(t, check.First).MatchString(said(findings[0]))) {
		t.Errorf("the first finding is not %s in\n%s", check.First, all)
	}
	checkTextMode(t, code, findings, args)
}

// diagnoseJSON runs a diagnosis and returns its findings.
func diagnoseJSON(t *testing.T, args ...string) (code int, findings []diagnose.Finding, stderr string) {
	t.Helper()
	code, stdout, stderr := run(t, append(args, "-o", "json")...)
	var view map[string][]diagnose.Finding
	if err := json.Unmarshal([]byte(stdout), &view); err != nil || len(view) != 1 || view["findings"] == nil {
		t.Fatalf("%v: exit %d, stdout is not {\"findings\": […]}: %v\n%s%s", args, code, err, stdout, stderr)
	}
	return code, view["findings"], stderr
}

// checkTextMode compares the order of codes and the exit code with those of JSON.
func checkTextMode(t *testing.T, code int, findings []diagnose.Finding, args []string) {
	t.Helper()
	textCode, stdout, _ := run(t, args...)
	if textCode != code {
		t.Errorf("text mode exits with %d, JSON with %d", textCode, code)
	}
	var want []string
	for _, f := range findings {
		want = append(want, string(f.Code))
	}
	got := regexp.MustCompile(`(?m)^\w+ +(GPU0\d{3})`).FindAllStringSubmatch(stdout, -1)
	var have []string
	for _, m := range got {
		have = append(have, m[1])
	}
	if !slices.Equal(have, want) {
		t.Errorf("text mode shows %v, JSON %v", have, want)
	}
}

// TestBundleOfCases packs each case and diagnoses the bundle: the findings are those
// of the case.
func TestBundleOfCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*/checks.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		for _, check := range readDiagnoseChecks(t, file) {
			t.Run(filepath.Base(filepath.Dir(file)), func(t *testing.T) {
				archive := filepath.Join(t.TempDir(), "bundle.tar.gz")
				args := wireCheck{BareCR: check.BareCR, Args: check.Args}.args(t)
				t.Chdir(filepath.Dir(file))
				code, want, stderr := diagnoseJSON(t, append([]string{"diagnose", "--bundle", archive}, args...)...)
				if strings.Contains(stderr, "other findings") {
					t.Errorf("the bundle does not read back:\n%s", stderr)
				}
				again, got, _ := diagnoseJSON(t, "diagnose", "-f", archive)
				if diff := cmp.Diff(want, got); diff != "" || again != code {
					t.Errorf("exit %d of the case, %d of its bundle; findings (-case +bundle):\n%s", code, again, diff)
				}
				if info, err := os.Stat(archive); err != nil || info.Mode().Perm() != 0o600 {
					t.Errorf("the bundle's mode is %v, %v", info.Mode(), err)
				}
			})
		}
	}
}
