package cluster

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"time"
)

// Request is a request as the API server's audit log has it.
type Request struct {
	Time        time.Time // when it came
	User        string    // the one it was made for, where somebody was impersonated
	Verb        string    // create, update, patch, delete, deletecollection; with WithReads also get, list, watch
	Group       string    // "" for core
	Resource    string    // plural; empty where the path names none, as in discovery
	Subresource string
	Namespace   string
	// Name is empty for a collection, and for an object that was to be created and
	// was refused before it was read, or gets its name by generateName.
	Name      string
	UserAgent string
	Code      int // of the response
	DryRun    bool
}

// WithAudit has the API server keep an audit log of all writes, which Writes
// needs. It makes each of them take longer.
func WithAudit() Option { return func(o *options) { o.audit = writeVerbs() } }

// WithReads is WithAudit, and has reads in the log as well.
func WithReads() Option {
	return func(o *options) { o.audit = append(writeVerbs(), readVerbs()...) }
}

// IsWrite reports whether the request would change what is stored: it may have
// been refused, or a dry run.
func (r Request) IsWrite() bool { return slices.Contains(writeVerbs(), r.Verb) }

func writeVerbs() []string {
	return []string{"create", "update", "patch", "delete", "deletecollection"}
}

func readVerbs() []string { return []string{"get", "list", "watch"} }

// nodesGroup is the group of kubelets, and of the user who plays their heartbeats.
const nodesGroup = "system:nodes"

// auditFlags are what the API server takes to keep the log. It is one file, for
// requests to read.
func (s *stack) auditFlags() []string {
	if s.options.audit == nil {
		return nil
	}
	return []string{
		"--audit-policy-file=" + s.dir.file("audit-policy.json"),
		"--audit-log-path=" + s.auditLog(), "--audit-log-format=json", "--audit-log-maxsize=0",
	}
}

// writeAuditPolicy has the API server log requests by their verbs, but not those
// of nodes: their heartbeats would be most of the log.
func writeAuditPolicy(path string, verbs []string) error {
	data, err := json.Marshal(map[string]any{
		"apiVersion": "audit.k8s.io/v1", "kind": "Policy",
		"omitStages":        []string{"RequestReceived", "ResponseStarted", "Panic"},
		"omitManagedFields": true,
		"rules": []any{
			map[string]any{"level": "None", "userGroups": []string{nodesGroup}},
			// Questions, which are created and not stored.
			map[string]any{"level": "None", "resources": []any{
				map[string]any{"group": "authentication.k8s.io"}, map[string]any{"group": "authorization.k8s.io"},
			}},
			map[string]any{"level": "Metadata", "verbs": verbs},
		},
	})
	if err != nil {
		return fmt.Errorf("encode the audit policy: %w", err)
	}
	return os.WriteFile(path, data, 0o600)
}

// auditLog is where the API server writes it: among the logs, for it tells what
// happened before a test failed.
func (s *stack) auditLog() string { return s.dir.log("audit") }

// auditEvent is what is read of an event of audit.k8s.io/v1.
type auditEvent struct {
	Verb             string    `json:"verb"`
	RequestURI       string    `json:"requestURI"`
	User             auditUser `json:"user"`
	ImpersonatedUser auditUser `json:"impersonatedUser"`
	UserAgent        string    `json:"userAgent"`
	ObjectRef        struct {
		APIGroup    string `json:"apiGroup"`
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	Received time.Time `json:"requestReceivedTimestamp"`
}

type auditUser struct {
	Username string `json:"username"`
}

func (e *auditEvent) request() (Request, error) {
	uri, err := url.ParseRequestURI(e.RequestURI)
	if err != nil {
		return Request{}, err
	}
	user := e.User.Username
	if e.ImpersonatedUser.Username != "" {
		user = e.ImpersonatedUser.Username
	}
	return Request{
		Time: e.Received, User: user, Verb: e.Verb, Group: e.ObjectRef.APIGroup, Resource: e.ObjectRef.Resource, Subresource: e.ObjectRef.Subresource,
		Namespace: e.ObjectRef.Namespace, Name: e.ObjectRef.Name, UserAgent: e.UserAgent,
		Code: e.ResponseStatus.Code, DryRun: uri.Query().Has("dryRun"),
	}, nil
}

// requests returns what the log has of requests that came at a time or later, in
// the order in which they were answered.
func (s *stack) requests(since time.Time, want func(Request) bool) ([]Request, error) {
	if s.options.audit == nil {
		return nil, errors.New("read the audit log: the cluster was started without WithAudit")
	}
	data, err := os.ReadFile(s.auditLog())
	if err != nil {
		return nil, fmt.Errorf("read the audit log: %w", err)
	}
	return parseAudit(data, since.Truncate(time.Microsecond), want) // as exact as the log
}

// parseAudit reads whole lines only: the API server may be writing the last one.
func parseAudit(data []byte, since time.Time, want func(Request) bool) ([]Request, error) {
	var found []Request
	for line := range bytes.Lines(data) {
		if !bytes.HasSuffix(line, []byte("\n")) {
			break
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("read the audit log: %w in %.200q", err, line)
		}
		if e.Received.Before(since) {
			continue
		}
		r, err := e.request()
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		if want(r) {
			found = append(found, r)
		}
	}
	return found, nil
}

// writes returns the writes of users.
func (s *stack) writes(since time.Time, by func(user string) bool) ([]Request, error) {
	return s.requests(since, func(r Request) bool { return r.IsWrite() && by(r.User) })
}

// Writes returns all writes of some users that came at a time or later, in the
// order in which they were answered: also those that were refused, and dry runs.
// Those of nodes are not there, and neither are access and token reviews. A write
// is there before its client has the whole response.
func (c *Cluster) Writes(since time.Time, by func(user string) bool) []Request {
	c.t.Helper()
	found, err := c.stack.writes(since, by)
	if err != nil {
		c.t.Fatal(err)
	}
	return found
}
