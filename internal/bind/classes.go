package bind

import (
	"context"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
)

// Publisher says what there is: the status of classes, and in the settings ConfigMap the
// names that count, which policies go by. It writes what differs, and nothing else. It is
// a runnable of a manager, for the leader.
type Publisher struct {
	BinderOptions
	Namespace string // gpuctl's own

	changed chan struct{}
	names   string    // that are to be in the settings
	read    time.Time // when they were last seen there
}

// NewPublisher makes a publisher.
func NewPublisher(o BinderOptions, namespace string) *Publisher {
	return &Publisher{BinderOptions: o, Namespace: namespace, changed: make(chan struct{}, 1)}
}

// Changed says that the facts have changed. It does not block.
func (p *Publisher) Changed() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

const (
	// publishAgain is how long what changes is gathered: orders come in crowds.
	publishAgain = time.Second
	// republish is when all is looked at though nothing has changed here.
	republish = 5 * time.Minute
	// rereadSettings is when the ConfigMap is read though nothing has changed here: each
	// upgrade of the chart, and each round of a GitOps tool, puts its own names there.
	rereadSettings = 5 * time.Second
)

// Start publishes until ctx ends.
func (p *Publisher) Start(ctx context.Context) error {
	var due time.Time // to look at all
	for ctx.Err() == nil {
		pause, now, err := rereadSettings, p.Now(), error(nil)
		switch {
		case !p.Feed.Synced():
			pause = publishAgain
		case now.Before(due):
			err = p.keepNames(ctx)
		default:
			due = now.Add(republish)
			err = p.publish(ctx)
		}
		if err != nil && ctx.Err() == nil {
			p.Log.Error(err, "say what there is")
			pause, due = 10*publishAgain, now
		}
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-p.changed:
			due = time.Time{}
			sleep(ctx, publishAgain)
		case <-timer.C:
		}
		timer.Stop()
	}
	return nil
}

// publish writes what differs.
func (p *Publisher) publish(ctx context.Context) error {
	var next []*v1alpha1.GPUClass
	var names []string
	p.Feed.View(func(b *books.Books, d cluster.View) {
		offers := b.Offers()
		for _, c := range d.Classes() {
			if offer, ok := offers[c.Name]; ok {
				if now := described(c, offer, p.Now()); now != nil {
					next = append(next, now)
				}
			}
		}
		for _, name := range b.Names().All() {
			names = append(names, string(name))
		}
	})
	for _, c := range next {
		if err := p.Client.Status().Update(ctx, c); err != nil && answerOf(err) != conflict && answerOf(err) != gone {
			return fmt.Errorf("write the status of GPUClass %s: %w", c.Name, err)
		}
	}
	if text := v1alpha1.EncodeResourceNames(names); text != p.names {
		p.names, p.read = text, time.Time{}
	}
	if p.Now().Sub(p.read) < rereadSettings {
		return nil
	}
	return p.keepNames(ctx)
}

// described returns the class with the status that it should have; nil where it has it.
func described(c *v1alpha1.GPUClass, o books.Offer, now time.Time) *v1alpha1.GPUClass {
	next := c.DeepCopy()
	s := &next.Status
	s.ObservedGeneration = c.Generation
	s.Units = &v1alpha1.ClassUnits{
		Total: int32(o.Total), Free: int32(o.Free), Held: int32(o.Held), Attached: int32(o.Attached), Lost: int32(o.Lost),
	}
	for _, condition := range []metav1.Condition{permission(c, o), availability(c, o)} {
		condition.ObservedGeneration = c.Generation
		condition.LastTransitionTime = metav1.NewTime(now).Rfc3339Copy()
		meta.SetStatusCondition(&s.Conditions, condition)
	}
	if equality.Semantic.DeepEqual(c.Status, next.Status) {
		return nil
	}
	return next
}

func permission(c *v1alpha1.GPUClass, o books.Offer) metav1.Condition {
	if o.Permitted {
		return v1alpha1.Permitted(metav1.ConditionTrue, v1alpha1.ReasonPermitted, "")
	}
	return v1alpha1.Permitted(metav1.ConditionFalse, v1alpha1.ReasonNotPermitted,
		fmt.Sprintf("KubeVirt's host device table has no entry with the name %s: run gpuctl diagnose", c.Spec.ResourceName))
}

func availability(c *v1alpha1.GPUClass, o books.Offer) metav1.Condition {
	switch {
	case !o.Permitted:
		return v1alpha1.Available(metav1.ConditionFalse, v1alpha1.ReasonNotPermitted, "")
	case o.Total == 0:
		return v1alpha1.Available(metav1.ConditionFalse, v1alpha1.ReasonNotServed, "no node of the class serves "+c.Spec.ResourceName)
	case o.Free == 0 && o.Held+o.Attached < o.Total:
		return v1alpha1.Available(metav1.ConditionFalse, v1alpha1.ReasonClosed, "what is free is on nodes that take nothing new: they are cordoned or not ready, or pods have it by name")
	case o.Free == 0:
		return v1alpha1.Available(metav1.ConditionFalse, v1alpha1.ReasonTaken, "all "+strconv.FormatInt(o.Total, 10)+" units are held or in use")
	}
	return v1alpha1.Available(metav1.ConditionTrue, v1alpha1.ReasonFree, "")
}

// keepNames writes the names that count into the settings, where they are others. A
// ConfigMap that is not there is the chart's to make.
func (p *Publisher) keepNames(ctx context.Context) error {
	found := &corev1.ConfigMap{}
	err := p.Live.Get(ctx, client.ObjectKey{Namespace: p.Namespace, Name: v1alpha1.SettingsName}, found)
	if answerOf(err) == gone {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read ConfigMap %s/%s: %w", p.Namespace, v1alpha1.SettingsName, err)
	}
	if found.Data[v1alpha1.SettingResourceNames] != p.names {
		if found.Data == nil {
			found.Data = map[string]string{}
		}
		found.Data[v1alpha1.SettingResourceNames] = p.names
		if err := p.Client.Update(ctx, found); err != nil {
			return fmt.Errorf("write %s of ConfigMap %s/%s: %w", v1alpha1.SettingResourceNames, p.Namespace, v1alpha1.SettingsName, err)
		}
	}
	p.read = p.Now()
	return nil
}
