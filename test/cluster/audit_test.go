package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParseAudit(t *testing.T) {
	line := func(second, name string) string {
		return `{"kind":"Event","apiVersion":"audit.k8s.io/v1","level":"Metadata","stage":"ResponseComplete","requestURI":"/api/v1/nodes/` + name + `?fieldManager=x","verb":"patch",` +
			`"user":{"username":"a"},"userAgent":"test","objectRef":{"resource":"nodes","name":"` + name + `","apiVersion":"v1"},"responseStatus":{"metadata":{},"code":200},` +
			`"requestReceivedTimestamp":"2026-01-01T00:00:` + second + `Z","stageTimestamp":"2026-01-01T00:00:09.000000Z"}` + "\n"
	}
	whole := line("01.000000", "one") + line("02.000000", "two")
	for name, tc := range map[string]struct {
		log     string
		want    []string
		wantErr string
	}{
		"no line":                  {},
		"whole lines":              {log: whole, want: []string{"one", "two"}},
		"what came before is left": {log: line("00.999999", "early") + whole, want: []string{"one", "two"}},
		"a half-written last line": {log: whole + line("03.000000", "three")[:40], want: []string{"one", "two"}},
		"a last line without end":  {log: whole + strings.TrimSuffix(line("03.000000", "three"), "\n"), want: []string{"one", "two"}},
		"a line that is no event":  {log: "{\n" + whole, wantErr: "read the audit log"},
	} {
		t.Run(name, func(t *testing.T) {
			found, err := parseAudit([]byte(tc.log), time.Date(2026, 1, 1, 0, 0, 1, 0, time.UTC), Request.IsWrite)
			if (err != nil) != (tc.wantErr != "") || err != nil && !strings.Contains(err.Error(), tc.wantErr) {
				t.Fatalf("got error %v, want %q", err, tc.wantErr)
			}
			var names []string
			for _, r := range found {
				names = append(names, r.Name)
			}
			if diff := cmp.Diff(tc.want, names); diff != "" {
				t.Errorf("requests differ (-want +got):\n%s", diff)
			}
		})
	}
}
