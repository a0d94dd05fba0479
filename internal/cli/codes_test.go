package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// TestEveryCode reads testdata/codes: for each code what raises it, and a near miss
// that must not. An archive's comment has the two command lines, and the object of
// the finding.
func TestEveryCode(t *testing.T) {
	files := map[string]bool{}
	for _, e := range diagnose.Catalog() {
		code := string(e.Code)
		elsewhere, has := elsewhere[code]
		file := filepath.Join("testdata", "codes", code+".txtar")
		files[file] = true
		switch _, err := os.Stat(file); {
		case e.Retired:
		case err == nil && has:
			t.Errorf("%s has an archive and is listed as raised elsewhere", code)
		case err == nil:
			t.Run(code, func(t *testing.T) { runCode(t, e.Code, file) })
		case !has:
			t.Errorf("%s has neither an archive nor a test elsewhere", code)
		default:
			for _, test := range elsewhere {
				t.Run(code+" "+test, func(t *testing.T) { checkElsewhere(t, code, test) })
			}
		}
	}
	all, err := filepath.Glob("testdata/codes/*")
	if err != nil || len(all) == 0 {
		t.Fatalf("%d archives, %v", len(all), err)
	}
	for _, file := range all {
		if !files[file] {
			t.Errorf("%s belongs to no code", file)
		}
	}
}

// elsewhere names the tests that raise the codes that no files can: they take a live
// cluster, a host's file system, the preflight of a release, or an order or a start
// that is refused. Each has a near miss.
var elsewhere = map[string][]string{
	"GPU0101": {"test/e2e TestHookWithoutKubeVirt"},
	"GPU0103": {"test/e2e TestWake"},
	"GPU0104": {"test/e2e TestAnswersAfterTheWrite"},
	"GPU0105": {"internal/diagnose TestAgents", "test/e2e TestHookWithASilentNode"},
	"GPU0106": {"test/e2e TestHookWithoutGPUNode"},
	"GPU0107": {"test/e2e TestUninstallIsNotBlocked"},
	"GPU0108": {"internal/cli TestSummaryIsNotPassedOn"},
	"GPU0109": {"test/e2e TestRemoveBesideTheController"},
	"GPU0110": {"test/e2e TestRemoveBesideTheController"},
	"GPU0120": {"internal/diagnose TestPreflight"},
	"GPU0121": {"internal/diagnose TestPreflight"},
	"GPU0122": {"internal/diagnose TestPreflight"},
	"GPU0123": {"internal/diagnose TestPreflight"},
	"GPU0124": {"internal/diagnose TestPreflight"},
	"GPU0125": {"internal/diagnose TestPreflight"},
	"GPU0126": {"internal/diagnose TestPreflight"},
	"GPU0127": {"internal/diagnose TestPreflight"},
	"GPU0128": {"internal/diagnose TestPreflight"},
	"GPU0129": {"internal/diagnose TestPreflight"},
	"GPU0130": {"test/e2e TestDiagnoseAccess"},
	"GPU0214": {"internal/cli TestMissingDeviceNode"},
	"GPU0323": {"test/e2e TestAnswersAfterTheWrite"},
	"GPU0324": {"test/e2e TestAnswersAfterTheWrite"},
	"GPU0325": {"test/e2e TestPrunedWriteIsNoticed"},
	"GPU0601": {"internal/diagnose TestRefused"},
	"GPU0602": {"internal/diagnose TestRefused"},
	"GPU0603": {"internal/diagnose TestRefused"},
	"GPU0604": {"internal/diagnose TestRefused"},
	"GPU0605": {"internal/diagnose TestRefused"},
	"GPU0606": {"internal/diagnose TestRefused"},
	"GPU0607": {"internal/diagnose TestRefused"},
	"GPU0608": {"internal/diagnose TestRefused"},
	"GPU0609": {"internal/diagnose TestRefused"},
	"GPU0610": {"internal/diagnose TestRefused"},
	"GPU0611": {"internal/diagnose TestRefused"},
	"GPU0612": {"internal/diagnose TestRefusals"},
	"GPU0613": {"internal/diagnose TestRefused"},
	"GPU0620": {"internal/diagnose TestRefusals"},
	"GPU0621": {"internal/diagnose TestRefusals"},
	"GPU0622": {"internal/diagnose TestRefusals"},
	"GPU0623": {"internal/diagnose TestRefusals"},
	"GPU0624": {"internal/diagnose TestRefusals"},
	"GPU0625": {"internal/diagnose TestRefusals"},
	"GPU0626": {"internal/webhook TestOrderCarriesNothingElse"},
	"GPU0701": {"internal/diagnose TestRefused"},
	"GPU0702": {"internal/diagnose TestRefused"},
	"GPU0703": {"internal/diagnose TestRefused"},
	"GPU0704": {"internal/diagnose TestRefused"},
	"GPU0705": {"internal/diagnose TestRefused"},
	"GPU0710": {"internal/diagnose TestRefusals"},
	"GPU0711": {"internal/diagnose TestRefusals"},
	"GPU0713": {"internal/diagnose TestRefusals"},
	"GPU0715": {"internal/diagnose TestRefusals", "test/e2e TestLauncherGoesByVolumesAndPods"},
	"GPU0716": {"internal/diagnose TestRefusals", "internal/bind TestBinderReadsLaunchers"},
}

// checkElsewhere checks that a test is there and knows the code.
func checkElsewhere(t *testing.T, code, test string) {
	t.Helper()
	dir, name, _ := strings.Cut(test, " ")
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		_, body, found := strings.Cut(string(text), "\nfunc "+name+"(t *testing.T) {")
		if !found {
			continue
		}
		body, _, _ = strings.Cut(body, "\n}\n")
		if !strings.Contains(body, code) {
			t.Errorf("%s in %s does not name %s", name, file, code)
		}
		return
	}
	t.Errorf("%s has no %s", dir, name)
}

// codeCase is what the comment of an archive says.
type codeCase struct{ object, raise, near string }

func readCode(t *testing.T, comment string) (c codeCase) {
	t.Helper()
	for line := range strings.Lines(comment) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		switch key {
		case "object":
			c.object = value
		case "raise":
			c.raise = value
		case "near":
			c.near = value
		}
	}
	if c.object == "" || c.raise == "" || c.near == "" || c.raise == c.near {
		t.Fatalf("the archive's comment lacks object, raise or near:\n%s", comment)
	}
	return c
}

func runCode(t *testing.T, code diagnose.Code, file string) {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	c := readCode(t, string(archive.Comment))
	dir := t.TempDir()
	if err := txtar.Write(archive, dir); err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	raised := findingsOf(t, c.raise)
	with := func(f diagnose.Finding) bool {
		return f.Code == code && (f.Object == c.object || f.Object == "" && strings.HasPrefix(f.Message, c.object+" "))
	}
	if !slices.ContainsFunc(raised, with) {
		t.Errorf("%s does not find %s on %s:\n%s", c.raise, code, c.object, list(raised))
	}
	for _, f := range raised {
		if placeholder.MatchString(f.Message + f.Hint) {
			t.Errorf("a placeholder is left in %s", list([]diagnose.Finding{f}))
		}
	}
	near := findingsOf(t, c.near)
	if slices.ContainsFunc(near, func(f diagnose.Finding) bool { return f.Code == code }) {
		t.Errorf("%s finds %s:\n%s", c.near, code, list(near))
	}
}

// list shows findings in a test's log.
func list(findings []diagnose.Finding) string {
	var out strings.Builder
	for _, f := range findings {
		out.WriteString(string(f.Severity) + " " + string(f.Code) + " " + f.Object + ": " + f.Message + "\n")
	}
	return out.String()
}

// findingsOf runs a command line and returns its findings: those of the JSON, or, when
// a plan is refused, those on stderr.
func findingsOf(t *testing.T, line string) []diagnose.Finding {
	t.Helper()
	args := append(strings.Fields(line), "-o", "json")
	code, stdout, stderr := run(t, args...)
	if strings.Contains(stderr, "panic") || strings.Contains(stderr, "note: ") {
		t.Fatalf("%s: exit %d\n%s", line, code, stderr)
	}
	var view struct{ Findings []diagnose.Finding }
	if stdout != "" {
		if err := json.Unmarshal([]byte(stdout), &view); err != nil {
			t.Fatalf("%s: exit %d: %v\n%s%s", line, code, err, stdout, stderr)
		}
		return view.Findings
	}
	for _, m := range onStderr.FindAllStringSubmatch(stderr, -1) {
		f := diagnose.Finding{Severity: diagnose.Severity(m[1]), Code: diagnose.Code(m[2]), Message: m[3]}
		if object, message, ok := strings.Cut(m[3], ": "); ok {
			f.Object, f.Message = object, message
		}
		view.Findings = append(view.Findings, f)
	}
	if len(view.Findings) == 0 {
		t.Fatalf("%s: exit %d\n%s", line, code, stderr)
	}
	return view.Findings
}

var (
	placeholder = regexp.MustCompile(`\{[a-z]+\}`)
	onStderr    = regexp.MustCompile(`(?m)^(error|warning|info) +(GPU0\d{3}) +(.*)$`)
)
