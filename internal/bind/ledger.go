package bind

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

var (
	// ErrDeposed says that somebody else leads, or may: nothing more was written, and
	// nothing will be before Lead.
	ErrDeposed = errors.New("the leadership has ended")
	// ErrUnreadable says that the ledger cannot be read: nobody leads until a person has
	// put that right.
	ErrUnreadable = errors.New("nobody can lead, running VMs stay and others do not start")
	// ErrInvalid says that a batch breaks a rule: nothing was written, and the leadership
	// goes on.
	ErrInvalid = errors.New("the batch is not valid")
)

// Options are what a ledger needs. All are required.
type Options struct {
	Client client.Client // writes
	// Live reads from etcd, past all caches: the API reader of a manager.
	Live      client.Reader
	Namespace string // gpuctl's own
	// Holder is who leads. It is for people: terms tell leaders apart.
	Holder string
	Now    func() time.Time
}

// Ledger fences leaders and writes what the leader decides. It is not safe for concurrent
// use.
type Ledger struct {
	Options

	tryFor time.Duration // how long the API server may take to answer before it is asked again
	leads  bool
	stored *corev1.ConfigMap // by the own last swap
	is     v1alpha1.Ledger   // what is in it
}

// New returns a ledger that does not lead.
func New(o Options) *Ledger { return &Ledger{Options: o, tryFor: 10 * time.Second} }

// Term is that of the own last leadership; 0 before the first.
func (l *Ledger) Term() int64 { return l.is.Term }

// Lead becomes leader: when it returns nil, no write of an earlier leader can succeed any
// more, and all that they had begun is done or void. Only then may devices be listed and
// decided on. It goes on until it is answered or ctx ends. An error means that this
// process does not lead.
func (l *Ledger) Lead(ctx context.Context) error {
	l.leads = false
	if err := l.take(ctx); err != nil {
		return fmt.Errorf("lead: %w", err)
	}
	if err := l.replay(ctx); err != nil {
		return fmt.Errorf("lead: replay the batch of ConfigMap %s: %w", l.name(), err)
	}
	if l.is.Unfenced {
		if err := l.fence(ctx); err != nil {
			return fmt.Errorf("lead: fence devices after ConfigMap %s was made anew: %w", l.name(), err)
		}
	}
	l.leads = true
	return nil
}

// take swaps the next term in. When the outcome is not known it reads again, and takes a
// term more: whatever was on its way conflicts then.
func (l *Ledger) take(ctx context.Context) error {
	return l.repeat(ctx, "take ConfigMap "+l.name(), func(ctx context.Context) (answer, error) {
		found, err := l.read(ctx)
		if answerOf(err) == gone {
			return l.create(ctx)
		} else if err != nil {
			return answerOf(err), err
		}
		next, err := v1alpha1.DecodeLedger(found.Data)
		if err != nil {
			return refused, fmt.Errorf("%w: namespace %s: %w; delete it, and it is made anew without a loss: kubectl -n %s delete configmap %s",
				ErrUnreadable, l.Namespace, err, l.Namespace, v1alpha1.LedgerName)
		}
		if found.Annotations[v1alpha1.AnnotationLedger] != string(found.UID) {
			next.Unfenced = true // it is new, or a copy of another one, which may have had a batch since
		}
		next.Term++
		next.Holder = l.Holder
		err = l.update(ctx, found, next)
		if got := answerOf(err); got != gone {
			return got, err
		}
		return conflict, err
	})
}

// create makes a ledger where there is none. Of an earlier one, batches may be on their
// way that nobody knows: it is unfenced.
func (l *Ledger) create(ctx context.Context) (answer, error) {
	first := v1alpha1.Ledger{Term: 1, Holder: l.Holder, Unfenced: true, DecidedAt: l.time()}
	text, err := v1alpha1.EncodeLedger(first)
	if err != nil {
		return refused, err
	}
	made := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: l.Namespace, Name: v1alpha1.LedgerName,
			Labels: map[string]string{v1alpha1.LabelPartOf: v1alpha1.PartOf, v1alpha1.LabelComponent: v1alpha1.ComponentController},
		},
		Data: map[string]string{v1alpha1.LedgerKey: text},
	}
	err = l.Client.Create(ctx, made)
	switch {
	case err == nil:
		l.stored, l.is = made, first
		return done, nil
	case apierrors.IsAlreadyExists(err):
		return conflict, err
	case answerOf(err) == gone: // the namespace is not there
		return refused, err
	}
	return answerOf(err), err
}

// swap replaces the ledger as it was after the own last swap.
func (l *Ledger) swap(ctx context.Context, next v1alpha1.Ledger) error {
	text, err := v1alpha1.EncodeLedger(next)
	if err != nil {
		return err
	}
	mine := l.stored
	return l.repeat(ctx, "swap ConfigMap "+l.name(), func(ctx context.Context) (answer, error) {
		err := l.update(ctx, mine, next)
		if got := answerOf(err); got != conflict && got != gone {
			return got, err
		}
		// An earlier try may be what it conflicts with. Term and sequence are nobody else's.
		found, readErr := l.read(ctx)
		switch got := answerOf(readErr); {
		case got == done && found.UID == mine.UID && found.Data[v1alpha1.LedgerKey] == text:
			l.stored, l.is = found, next
			return done, nil
		case got == done || got == gone:
			return refused, fmt.Errorf("%w: %w", ErrDeposed, err)
		default:
			return unknown, readErr
		}
	})
}

// update writes a ledger over one that was read or written.
func (l *Ledger) update(ctx context.Context, over *corev1.ConfigMap, next v1alpha1.Ledger) error {
	text, err := v1alpha1.EncodeLedger(next)
	if err != nil {
		return err
	}
	changed := over.DeepCopy()
	changed.Data[v1alpha1.LedgerKey] = text
	metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationLedger, string(over.UID))
	if err := l.Client.Update(ctx, changed); err != nil {
		return err
	}
	l.stored, l.is = changed, next
	return nil
}

func (l *Ledger) read(ctx context.Context) (*corev1.ConfigMap, error) {
	found := &corev1.ConfigMap{}
	err := l.Live.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: v1alpha1.LedgerName}, found)
	return found, err
}

func (l *Ledger) name() string { return l.Namespace + "/" + v1alpha1.LedgerName }

// time is now as the API can keep it.
func (l *Ledger) time() metav1.MicroTime {
	return metav1.NewMicroTime(l.Now().Truncate(time.Microsecond))
}
