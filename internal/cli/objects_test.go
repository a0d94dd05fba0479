package cli

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// apiServer answers requests in the given order, and remembers what it was asked.
type apiServer struct {
	t       *testing.T
	answers []answer
	over    func() // called when there is no answer left

	mu    sync.Mutex
	asked []string
}

// answer is one answer of an API server.
type answer struct {
	code int // 0 for 200
	body string
}

func (s *apiServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if accept := r.Header.Get("Accept"); accept != "application/json;as=Table;v=v1;g=meta.k8s.io" {
		s.t.Errorf("%s is asked for as %q", r.URL, accept)
	}
	s.mu.Lock()
	n := len(s.asked)
	s.asked = append(s.asked, asked(r.URL))
	s.mu.Unlock()
	switch {
	case n >= len(s.answers):
		s.over()
		<-r.Context().Done()
	default:
		w.Header().Set("Content-Type", "application/json")
		if strings.HasPrefix(s.answers[n].body, "404") {
			w.Header().Set("Content-Type", "text/plain")
		}
		w.WriteHeader(max(s.answers[n].code, http.StatusOK))
		fmt.Fprint(w, s.answers[n].body)
	}
}

// asked returns a request without what is the same in all.
func asked(u *url.URL) string {
	query := u.Query()
	for _, always := range []string{"allowWatchBookmarks", "includeObject"} {
		query.Del(always)
	}
	return strings.TrimSuffix(strings.TrimPrefix(u.Path, "/apis/gpuctl.dev/v1alpha1/")+"?"+query.Encode(), "?")
}

// kubeconfig serves the API until the test ends.
func (s *apiServer) kubeconfig() string {
	server := httptest.NewServer(s)
	s.t.Cleanup(server.Close)
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf(`{apiVersion: v1, kind: Config, current-context: c, clusters: [{name: c, cluster: {server: %q}}], users: [{name: u, user: {}}],
contexts: [{name: c, context: {cluster: c, user: u, namespace: acme}}]}`, server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// shownWith runs gpuctl against the API server until it has no answer left.
func (s *apiServer) shownWith(args ...string) (code int, stdout, stderr string) {
	ctx, stop := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer stop()
	s.over = stop
	var out, err bytes.Buffer
	streams := &streams{out: &out, err: &err}
	root := newRoot(streams)
	root.SetArgs(append(args, "--kubeconfig", s.kubeconfig()))
	code = streams.exit(root.ExecuteContext(ctx))
	return code, out.String(), strings.ReplaceAll(err.String(), "http://127.0.0.1", "SERVER")
}

const columns = `"columnDefinitions":[{"name":"Name","type":"string"},{"name":"State","type":"string"},{"name":"Node","type":"string","priority":1}],`

// rows returns a table; a row is written NAME STATE UID/RESOURCEVERSION.
func rows(version, next, columns string, rows ...string) string {
	var out []string
	for _, row := range rows {
		f := strings.Fields(row)
		uid, rv, _ := strings.Cut(f[2], "/")
		out = append(out, fmt.Sprintf(`{"cells":[%q,%q,"worker-7"],"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":%q,"namespace":"acme","uid":%q,"resourceVersion":%q}}}`, f[0], f[1], f[0], uid, rv))
	}
	return fmt.Sprintf(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":%q,"continue":%q},%s"rows":[%s]}`, version, next, columns, strings.Join(out, ","))
}

func event(kind, object string) string {
	return fmt.Sprintf(`{"type":%q,"object":%s}`+"\n", kind, object)
}

func status(code int, reason, message string) string {
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","status":"Failure","message":%q,"reason":%q,"code":%d}`, message, reason, code)
}

// What commands that show objects ask an API server for, and make of what it answers.
func TestObjects(t *testing.T) {
	const first = "gpudevices?limit=500"
	absent := answer{http.StatusNotFound, "404 page not found\n"}
	away := answer{http.StatusInternalServerError, status(500, "InternalError", "etcd has no leader")}
	expired := status(http.StatusGone, "Expired", "too old resource version: 6 (9)")
	for name, tc := range map[string]struct {
		args    string
		answers []answer
		code    int
		stdout  string
		stderr  []string // parts of it
		asked   []string
	}{
		"the kinds are not installed": {
			args: "classes", answers: []answer{absent}, code: 1,
			stderr: []string{"the kind is not installed", "does not serve gpuclasses", "who runs the cluster installs it with: gpuctl upgrade --set orders.enabled=true\n"},
			asked:  []string{"gpuclasses?limit=500"},
		},
		"nor is that of a name": {
			args: "devices train-a", answers: []answer{absent}, code: 1,
			stderr: []string{"does not serve gpudevices", "gpuctl upgrade --set orders.enabled=true\n"},
			asked:  []string{"namespaces/acme/gpudevices/train-a"},
		},
		"no such device": {
			args: "devices train-a", answers: []answer{{http.StatusNotFound, status(404, "NotFound", `gpudevices.gpuctl.dev "train-a" not found`)}}, code: 1,
			stderr: []string{`error: gpudevices.gpuctl.dev "train-a" not found` + "\n"},
			asked:  []string{"namespaces/acme/gpudevices/train-a"},
		},
		"not allowed": {
			args: "devices", answers: []answer{{http.StatusForbidden, status(403, "Forbidden", "gpudevices.gpuctl.dev is forbidden")}}, code: 1,
			stderr: []string{"is forbidden; docs/orders.md says which role shows devices\n"},
			asked:  []string{"namespaces/acme/" + first},
		},
		"chunks": {
			args: "devices -A -l a=b", stdout: "NAMESPACE   NAME    STATE\nacme        a       Held\nacme        bbbbb   Lost\n",
			answers: []answer{{body: rows("5", "c1", columns, "a Held 1/1")}, {body: rows("5", "", "", "bbbbb Lost 2/2")}},
			asked:   []string{"gpudevices?labelSelector=a%3Db&limit=500", "gpudevices?continue=c1&labelSelector=a%3Db&limit=500"},
		},
		"a chunk that has expired": {
			args: "devices -o wide", stdout: "NAME   STATE   NODE\na      Lost    worker-7\n",
			answers: []answer{{body: rows("5", "c1", columns, "a Held 1/1")}, {http.StatusGone, expired}, {body: rows("9", "", columns, "a Lost 1/9")}},
			asked:   []string{"namespaces/acme/" + first, "namespaces/acme/gpudevices?continue=c1&limit=500", "namespaces/acme/gpudevices"},
		},
		"a watch": {
			args: "devices -A -w", stdout: "NAMESPACE   NAME   STATE\nacme        a      Pending\nacme        a      Held\nacme        b      Pending\nacme        b      Pending\n",
			answers: []answer{
				{body: rows("5", "", columns, "a Pending 1/5")},
				{body: event("MODIFIED", rows("6", "", columns, "a Held 1/6")) + event("BOOKMARK", rows("7", "", "")) + event("ADDED", rows("8", "", "", "b Pending 2/8"))}, // the connection ends
				{body: event("DELETED", rows("9", "", columns, "b Pending 2/9"))},
			},
			asked: []string{first, "gpudevices?resourceVersion=5&watch=true", "gpudevices?resourceVersion=8&watch=true", "gpudevices?resourceVersion=9&watch=true"},
		},
		"a watch that has expired": {
			args: "devices -w", stdout: "NAME   STATE\na      Pending\na      Held\nc      Lost\n",
			answers: []answer{
				{body: rows("5", "", columns, "a Pending 1/5")},
				{body: event("MODIFIED", rows("6", "", columns, "a Held 1/6")) + event("ERROR", expired)},
				{body: rows("9", "", columns, "a Held 1/6", "c Lost 3/9")},
				{http.StatusGone, expired},
				{body: rows("12", "", columns, "a Held 1/6", "c Lost 3/9")},
			},
			asked: []string{
				"namespaces/acme/" + first, "namespaces/acme/gpudevices?resourceVersion=5&watch=true", "namespaces/acme/" + first,
				"namespaces/acme/gpudevices?resourceVersion=9&watch=true", "namespaces/acme/" + first, "namespaces/acme/gpudevices?resourceVersion=12&watch=true",
			},
		},
		"a watch of nothing yet": {
			args: "devices -w", stdout: "NAME   STATE\na      Pending\n", stderr: []string{"there are no devices in namespace acme\n"},
			answers: []answer{{body: rows("5", "", columns)}, {body: event("ADDED", rows("6", "", columns, "a Pending 1/6"))}},
			asked:   []string{"namespaces/acme/" + first, "namespaces/acme/gpudevices?resourceVersion=5&watch=true", "namespaces/acme/gpudevices?resourceVersion=6&watch=true"},
		},
		"a watch of one": {
			args: "devices -w train-a -n other", stdout: "NAME      STATE\ntrain-a   Held\n",
			answers: []answer{{body: rows("5", "", columns, "train-a Held 1/5")}},
			asked:   []string{"namespaces/other/gpudevices?fieldSelector=metadata.name%3Dtrain-a&limit=500", "namespaces/other/gpudevices?fieldSelector=metadata.name%3Dtrain-a&resourceVersion=5&watch=true"},
		},
		"the kind goes while it is watched": {
			args: "classes -w", code: 1, stdout: "NAME   STATE\nh200   x\n", stderr: []string{"error: watch gpuclasses: the kind is not installed"},
			answers: []answer{{body: rows("5", "", columns, "h200 x 1/5")}, absent},
			asked:   []string{"gpuclasses?limit=500", "gpuclasses?resourceVersion=5&watch=true"},
		},
		"a watch is forbidden": {
			args: "classes -w", code: 1, stdout: "NAME   STATE\nh200   x\n", stderr: []string{"may not watch; docs/orders.md"},
			answers: []answer{{body: rows("5", "", columns, "h200 x 1/5")}, {http.StatusForbidden, status(403, "Forbidden", "may not watch")}},
			asked:   []string{"gpuclasses?limit=500", "gpuclasses?resourceVersion=5&watch=true"},
		},
		"the API server is away for a while": {
			args: "classes -w", stdout: "NAME   STATE\nh200   x\n", stderr: []string{"error: etcd has no leader; trying again\n"},
			answers: []answer{{body: rows("5", "", columns, "h200 x 1/5")}, away, away},
			asked:   []string{"gpuclasses?limit=500", "gpuclasses?resourceVersion=5&watch=true", "gpuclasses?resourceVersion=5&watch=true", "gpuclasses?resourceVersion=5&watch=true"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := &apiServer{t: t, answers: tc.answers, over: func() {}}
			code, stdout, stderr := s.shownWith(strings.Fields(tc.args)...)
			if diff := cmp.Diff(tc.stdout, stdout); diff != "" || code != tc.code {
				t.Errorf("exit %d, stdout (-want +got):\n%s", code, diff)
			}
			if diff := cmp.Diff(tc.asked, s.asked); diff != "" {
				t.Errorf("asked (-want +got):\n%s", diff)
			}
			for _, part := range tc.stderr {
				if strings.Count(stderr, part) != 1 {
					t.Errorf("%q is not once in stderr: %s", part, stderr)
				}
			}
			if len(tc.stderr) == 0 && stderr != "" {
				t.Errorf("stderr: %s", stderr)
			}
		})
	}
}

// As kubectl's plugin gpuctl says what to type there.
func TestObjectsAsPlugin(t *testing.T) {
	s := &apiServer{t: t, answers: []answer{{http.StatusNotFound, "404 page not found\n"}}}
	var out, err bytes.Buffer
	code := Main("/usr/bin/kubectl-gpuctl", []string{"devices", "-A", "--kubeconfig", s.kubeconfig()}, strings.NewReader(""), &out, &err)
	if want := "with: kubectl gpuctl upgrade --set orders.enabled=true\n"; code != 1 || !strings.HasSuffix(err.String(), want) || out.Len() > 0 {
		t.Errorf("exit %d, want %q in %s", code, want, err.String())
	}
}
