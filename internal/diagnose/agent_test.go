package diagnose

import (
	"testing"
	"time"
)

// TestAgents reports agents that do not report, GPU0105, and no others.
func TestAgents(t *testing.T) {
	for name, tt := range map[string]struct {
		agent Agent
		want  string // the message, "" for no finding
	}{
		"reports":            {Agent{Node: "a", Reports: true, Silent: time.Minute}, ""},
		"reports, pod waits": {Agent{Node: "a", Reports: true, Problem: "its pod waits: ErrImagePull"}, ""},
		"never reported":     {Agent{Node: "a", Pod: "n/p"}, "the agent of node a does not report: it has reported nothing yet"},
		"went silent":        {Agent{Node: "a", Pod: "n/p", Silent: 10 * time.Minute}, "the agent of node a does not report: nothing was heard of it for 10m0s"},
		"its pod waits":      {Agent{Node: "a", Pod: "n/p", Problem: "its pod waits: ErrImagePull"}, "the agent of node a does not report: it has reported nothing yet; its pod waits: ErrImagePull"},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := Diagnose(&Evidence{Agents: []Agent{tt.agent}}, Subject{})
			got := ""
			for _, f := range r.Findings {
				got += f.Message
				if f.Code != "GPU0105" || f.Object != "node/a" {
					t.Errorf("%s on %s, want GPU0105 on node/a", f.Code, f.Object)
				}
			}
			if got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
}
