package attach

import (
	"context"
	"fmt"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// take makes the devices that are missing, attaches all, and waits for the answer.
func (s *Starter) take(ctx context.Context, st *start, launcher string) error {
	var making []func() error
	for _, m := range st.members {
		if m.device == nil {
			making = append(making, func() error { return s.make(ctx, st, m) })
		}
	}
	if err := together(making...); err != nil {
		return err
	}
	for i, m := range byUID(st.members) {
		ask := &v1alpha1.BindRequest{RequestID: st.id, Devices: int32(len(st.members))}
		if i == 0 {
			ask.Launcher = launcher
		}
		if err := s.attach(ctx, st, m, ask); err != nil {
			return err
		}
	}
	return s.wait(ctx, st)
}

// make makes a device from a template.
func (s *Starter) make(ctx context.Context, st *start, m *member) error {
	d := &v1alpha1.GPUDevice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: st.namespace, Name: m.name, Finalizers: []string{v1alpha1.FinalizerUnits},
			Labels:      map[string]string{v1alpha1.LabelTemplateDevice: v1alpha1.ValueTrue},
			Annotations: map[string]string{v1alpha1.AnnotationRequestID: st.id},
		},
		Spec: v1alpha1.GPUDeviceSpec{ClassName: m.template.Class, Count: m.template.Count},
	}
	for {
		err := s.Client.Create(ctx, d)
		if err == nil {
			m.device, m.made = d, true
			return nil
		}
		if apierrors.IsAlreadyExists(err) { // somebody's, or ours whose answer was lost: that one is collected
			d.Name = deviceName(st.name, rand.String(nameRandom))
			d.ResourceVersion = ""
			m.name = d.Name
			continue
		}
		if _, over, full := strings.Cut(err.Error(), "exceeded quota: "); full && apierrors.IsForbidden(err) {
			return diagnose.NoMoreDevices(st.String(), st.namespace, over)
		}
		return fmt.Errorf("make a device of class %s: %w", m.template.Class, err)
	}
}

// attach takes a device for the start, and asks for a node: one write.
func (s *Starter) attach(ctx context.Context, st *start, m *member, ask *v1alpha1.BindRequest) error {
	at := metav1.NewMicroTime(s.Now())
	ask.RequestedAt = at
	attachment := &v1alpha1.Attachment{VMIName: st.name, VMUID: st.vmUID(), RequestID: st.id, Since: at}
	for {
		next := m.device.DeepCopy()
		next.Status.Attachment, next.Status.BindRequest = attachment, ask
		if m.made {
			next.Status.Origin = &v1alpha1.Origin{Kind: v1alpha1.OriginTemplate, VM: st.vm}
		}
		settle(next, at.Time)
		err := s.Client.Status().Update(ctx, next)
		if err == nil {
			m.device = next
			s.Feed.Assume(next)
			return nil
		}
		if ctx.Err() != nil || apierrors.IsForbidden(err) || apierrors.IsInvalid(err) {
			return fmt.Errorf("attach GPUDevice %s/%s: %w", next.Namespace, next.Name, err)
		}
		live, failed := s.device(ctx, next.Namespace, next.Name)
		switch {
		case failed != nil:
			return failed
		case live == nil || live.UID != m.device.UID:
			return diagnose.NoDevice(st.String(), next.Namespace, next.Name)
		case carries(live, st.id): // by a write whose answer was lost
			m.device = live
			s.Feed.Assume(live)
			return nil
		}
		if err := s.free(ctx, st, live); err != nil {
			return err
		}
		m.device = live
		if !apierrors.IsConflict(err) {
			sleep(ctx, retryFirst)
		}
	}
}

// settle brings state and conditions of a device in line with the rest of its status.
// What it was told of its units it goes on being told.
func settle(d *v1alpha1.GPUDevice, at time.Time) {
	s := &d.Status
	s.State = s.Derive()
	reason, message := v1alpha1.ReasonNoUnits, "it waits for units"
	if told := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionHeld); told != nil {
		reason, message = told.Reason, told.Message
	}
	if s.HoldsUnits() {
		message = ""
	}
	for _, c := range []metav1.Condition{s.Held(reason, message), s.Attached()} {
		c.LastTransitionTime = metav1.NewTime(at).Rfc3339Copy()
		meta.SetStatusCondition(&s.Conditions, c)
	}
}

// carries reports that a device is taken by a start, whose VMI has not claimed it.
func carries(d *v1alpha1.GPUDevice, id string) bool {
	a := d.Status.Attachment
	return a != nil && a.RequestID == id && a.VMIUID == ""
}

// wait returns when the binder has given the whole set a node, or says why it has not.
func (s *Starter) wait(ctx context.Context, st *start) error {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	look := time.NewTicker(leaderCheck)
	defer look.Stop()
	for {
		next := s.Feed.Next()
		if done, err := s.answer(st); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return diagnose.NotAnswered(st.String(), answerWait)
		case <-next:
		case <-look.C:
			if err := s.leader.check(ctx, st.String()); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// answer looks at what the binder has said.
func (s *Starter) answer(st *start) (done bool, err error) {
	node := ""
	s.Feed.View(func(_ *books.Books, v cluster.View) {
		done = true
		for _, m := range st.members {
			d := v.Device(string(m.device.UID))
			if d == nil {
				done, err = false, diagnose.NoDevice(st.String(), st.namespace, m.name)
				return
			}
			got, refused := answered(d, st.id)
			if refused != nil {
				done, err = false, diagnose.Told(st.String(), refused.Code, refused.Message)
				return
			}
			if got == "" || node != "" && got != node {
				done = false
				continue
			}
			node, m.device = got, d
			m.resource = d.Status.Placement.ResourceName
		}
	})
	return done, err
}

// answered returns the node that a start's device has been given, or the refusal.
func answered(d *v1alpha1.GPUDevice, id string) (node string, refused *v1alpha1.Refusal) {
	q, p := d.Status.BindRequest, d.Status.Placement
	switch {
	case !carries(d, id) || q == nil || q.RequestID != id || q.Answer == nil:
		return "", nil
	case q.Answer.Refusal != nil:
		return "", q.Answer.Refusal
	case p == nil || p.LostSince != nil || p.Node != q.Answer.Node:
		return "", nil
	}
	return p.Node, nil
}

// giveBack takes away what a start has taken. It goes on when ctx has ended, for the API
// server waits no longer then; what is left after that is collected.
func (s *Starter) giveBack(ctx context.Context, st *start) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), aftermath)
		defer cancel()
		workqueue.ParallelizeUntil(context.Background(), atOnce, len(st.members), func(i int) {
			m := st.members[i]
			if m.device == nil {
				return
			}
			if err := s.release(ctx, m, st.id); err != nil {
				s.Log.Error(err, "what a start had taken is left to the collector", "device", klog.KObj(m.device), "vmi", st.String())
			}
		})
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// release lets go of a device, if the start has it still, and deletes one that the start
// made.
func (s *Starter) release(ctx context.Context, m *member, id string) error {
	_, err := s.detach(ctx, m.device, func(d *v1alpha1.GPUDevice) bool { return carries(d, id) })
	if err != nil || !m.made {
		return err
	}
	return s.remove(ctx, m.device)
}

// detach takes attachment and bind request of a device away, for as long as that is
// right by what the device says. done says that this call did it.
func (o *Options) detach(ctx context.Context, d *v1alpha1.GPUDevice, right func(*v1alpha1.GPUDevice) bool) (done bool, err error) {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		live, err := o.device(ctx, d.Namespace, d.Name)
		if err == nil {
			if live == nil || live.UID != d.UID || !right(live) {
				return false, nil
			}
			live.Status.Attachment, live.Status.BindRequest = nil, nil
			settle(live, o.Now())
			if err = o.Client.Status().Update(ctx, live); err == nil {
				o.Feed.Assume(live)
				return true, nil
			}
		}
		if !sleep(ctx, pause) {
			return false, err
		}
	}
}

const (
	retryFirst = 5 * time.Millisecond
	retryLast  = 2 * time.Second
)

// remove deletes a device that was made from a template. Its finalizer is the binder's.
func (o *Options) remove(ctx context.Context, d *v1alpha1.GPUDevice) error {
	for pause := retryFirst; ; pause = min(2*pause, retryLast) {
		live, err := o.device(ctx, d.Namespace, d.Name)
		if err == nil {
			if live == nil || live.UID != d.UID || live.DeletionTimestamp != nil || live.Status.Attachment != nil {
				return nil
			}
			err = o.Client.Delete(ctx, live, client.Preconditions{UID: &live.UID, ResourceVersion: &live.ResourceVersion})
			if err == nil || cluster.Absent(err) {
				return nil
			}
		}
		if !sleep(ctx, pause) {
			return err
		}
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// atOnce is how many objects are read or written at a time.
const atOnce = 16
