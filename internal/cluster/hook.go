package cluster

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

// JobStart returns when a Job was started: the time that its retried pods have
// counts from there.
func (c *Client) JobStart(ctx context.Context, namespace, name string) (time.Time, error) {
	job, err := c.core.BatchV1().Jobs(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return time.Time{}, fmt.Errorf("read Job %s/%s: %w", namespace, name, err)
	}
	if job.Status.StartTime != nil {
		return job.Status.StartTime.Time, nil
	}
	return job.CreationTimestamp.Time, nil
}

// Event is something that happened to an object.
type Event struct {
	Controller, Instance string // who reports it: WiredBy or KeptBy, and which of them
	Reason               string // CamelCase
	Warning              bool
	Note                 string // at most MaxNote bytes
}

// Controllers that report Events.
const (
	WiredBy = "gpuctl.dev/wire"   // gpuctl wire, the hook's too
	KeptBy  = "gpuctl.dev/wiring" // gpuctl serve
)

// MaxNote is how many bytes an Event's note can have.
const MaxNote = 1024

// Record writes an Event on an object.
func (c *Client) Record(ctx context.Context, d *manifest.Document, e Event) error {
	now := metav1.NowMicro()
	namespace := d.Meta("namespace")
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	kind := corev1.EventTypeNormal
	if e.Warning {
		kind = corev1.EventTypeWarning
	}
	event := &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: d.Meta("name") + "-gpuctl-", Namespace: namespace},
		EventTime:  now, Type: kind, Reason: e.Reason, Action: "Wire", Note: e.Note,
		ReportingController: e.Controller, ReportingInstance: e.Instance,
		Regarding: corev1.ObjectReference{
			APIVersion: d.APIVersion(), Kind: d.Kind(), Namespace: d.Meta("namespace"), Name: d.Meta("name"),
		},
	}
	uid, _ := manifest.Lookup(d.Object, manifest.Path{"metadata", "uid"})
	if text, ok := uid.(string); ok {
		event.Regarding.UID = types.UID(text)
	}
	if _, err := c.core.EventsV1().Events(namespace).Create(ctx, event, metav1.CreateOptions{FieldManager: c.manager}); err != nil {
		return fmt.Errorf("write an Event on %s: %w", d.Ref(), err)
	}
	return nil
}
