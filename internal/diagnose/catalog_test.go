package diagnose

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

func TestCatalogIsWellFormed(t *testing.T) {
	entries := Catalog()
	if !slices.IsSortedFunc(entries, func(a, b Entry) int { return strings.Compare(string(a.Code), string(b.Code)) }) {
		t.Error("codes are not in order")
	}
	seen := map[Code]bool{}
	for _, e := range entries {
		if !regexp.MustCompile(`^GPU0\d{3}$`).MatchString(string(e.Code)) || seen[e.Code] {
			t.Errorf("code %q is malformed or used twice", e.Code)
		}
		seen[e.Code] = true
		if _, ok := e.Code.Area(); !ok {
			t.Errorf("%s is in no area", e.Code)
		}
		if e.Severity.Level() < 0 || e.Title == "" || e.Message == "" || e.About == "" {
			t.Errorf("%s is incomplete: %+v", e.Code, e)
		}
		if strings.HasSuffix(e.Title, ".") || strings.HasSuffix(e.Message, ".") {
			t.Errorf("%s: title and message are no sentences, and end without a full stop", e.Code)
		}
		if got, ok := Lookup(strings.ToLower(string(e.Code))); !ok || got != e {
			t.Errorf("Lookup(%q) = %+v, %v", strings.ToLower(string(e.Code)), got, ok)
		}
	}
}

// TestCodesAreReported compares the catalogue with the codes in the sources: no
// code without a place that reports it, none reported that it lacks.
func TestCodesAreReported(t *testing.T) {
	used := map[string]bool{}
	code := regexp.MustCompile(`"(GPU0\d{3})"`)
	err := filepath.WalkDir("../..", func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		data, err := os.ReadFile(path)
		for _, m := range code.FindAllSubmatch(data, -1) {
			used[string(m[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range Catalog() {
		if used[string(e.Code)] == e.Retired {
			t.Errorf("%s: retired is %v, reported is %v", e.Code, e.Retired, used[string(e.Code)])
		}
		delete(used, string(e.Code))
	}
	for c := range used {
		t.Errorf("%s is reported and not in the catalogue", c)
	}
}

func TestNewFillsPlaceholders(t *testing.T) {
	got := New("GPU0303", "KubeVirt k", Values{"path": "spec.x", "right": "spec.y", "kind": "KubeVirt"})
	want := Finding{
		Code: "GPU0303", Severity: Warning, Object: "KubeVirt k",
		Message: "spec.x is misplaced: KubeVirt has no such field there, and the API server prunes it",
		Hint:    "move its content to spec.y; gpuctl leaves it where it is",
	}
	if got != want {
		t.Errorf("New() = %+v, want %+v", got, want)
	}
	if got := New("GPU0303", "x", nil); !strings.Contains(got.Message, "{path}") {
		t.Errorf("a missing value does not show: %q", got.Message)
	}
	if got := New("GPU9999", "x", nil); got.Severity != Error || !strings.Contains(got.Message, "no such code") {
		t.Errorf("an unknown code does not show: %+v", got)
	}
}

func TestSort(t *testing.T) {
	a := Finding{Code: "GPU0201", Severity: Warning, Object: "a", Message: "x"}
	b := Finding{Code: "GPU0408", Severity: Error, Object: "b", Message: "x"}
	c := Finding{Code: "GPU0209", Severity: Info, Object: "a", Message: "x"}
	d := Finding{Code: "GPU0201", Severity: Warning, Object: "b", Message: "x"}
	got := Sort([]Finding{c, d, a, b, a})
	if want := []Finding{b, a, d, c}; !slices.Equal(got, want) {
		t.Errorf("Sort() = %v, want %v", got, want)
	}
}
