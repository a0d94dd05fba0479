package cli

import (
	"cmp"
	"context"
	"os"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// stopPatience is how long the controller's pods may take to end.
const stopPatience = 45 * time.Second

// stopController makes sure that nobody writes back what is to be removed.
func (l *live) stopController(ctx context.Context) error {
	if l.flags.stop == "" {
		running, err := l.client.Controllers(ctx, "")
		if err != nil || len(running) == 0 {
			return nil // who may not see it can take away what it writes back
		}
		name := running[0].String()
		return &patch.Refusal{Findings: []diagnose.Finding{diagnose.New("GPU0110", "Deployment "+name, diagnose.Values{"name": name})}}
	}
	d := types.NamespacedName{Namespace: os.Getenv("POD_NAMESPACE"), Name: l.flags.stop}
	if namespace, name, ok := strings.Cut(l.flags.stop, "/"); ok {
		d = types.NamespacedName{Namespace: namespace, Name: name}
	}
	d.Namespace = cmp.Or(d.Namespace, "default")
	ctx, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	if err := l.client.StopController(ctx, d); err != nil {
		l.unstopped = []diagnose.Finding{diagnose.New("GPU0109", "Deployment "+d.String(), diagnose.Values{"name": d.String(), "problem": err.Error()})}
	}
	return nil
}
