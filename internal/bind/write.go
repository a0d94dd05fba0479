package bind

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// errUnchanged says that no write of an entry has come yet.
var errUnchanged = errors.New("the device has still the resourceVersion of the entry")

// write settles one entry of the batch that is in the ledger. The device is that of the
// entry's resourceVersion. An error says that ctx ended before.
func (l *Ledger) write(ctx context.Context, e v1alpha1.LedgerEntry, d *v1alpha1.GPUDevice) (out Outcome, err error) {
	status := derive(d, e, l.is.DecidedAt)
	doubtful := false
	err = l.repeat(ctx, "write "+deviceName(e), func(ctx context.Context) (answer, error) {
		changed := d.DeepCopy()
		status.DeepCopyInto(&changed.Status)
		err := l.Client.Status().Update(ctx, changed)
		switch got := answerOf(err); {
		case got == done:
			out = Outcome{Result: Written, Device: changed}
			return done, nil
		case got == gone:
			out = Outcome{}
			return done, nil
		case got == conflict:
			out, got, err = l.look(ctx, e)
			return got, err
		case got == refused && !doubtful:
			out = Outcome{Result: Refused, Err: fmt.Errorf("write %s: %w", deviceName(e), err)}
			return done, nil
		default: // a refusal does not say what becomes of an earlier try
			doubtful = true
			return unknown, err
		}
	})
	return out, err
}

// look settles an entry by the live device. It is written where the device says so, by an
// earlier try or by whoever leads meanwhile; void where the device is not that of the
// entry's resourceVersion; and else unknown, with the device.
func (l *Ledger) look(ctx context.Context, e v1alpha1.LedgerEntry) (Outcome, answer, error) {
	found := &v1alpha1.GPUDevice{}
	err := l.Live.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: e.Name}, found)
	switch got := answerOf(err); {
	case got == gone || got == done && found.UID != e.UID:
		return Outcome{}, done, nil
	case got != done:
		return Outcome{}, unknown, err
	case found.ResourceVersion == e.ResourceVersion:
		return Outcome{Device: found}, unknown, errUnchanged
	case says(found, e):
		return Outcome{Result: Written, Device: found}, done, nil
	}
	return Outcome{Device: found}, done, nil
}

func deviceName(e v1alpha1.LedgerEntry) string {
	return fmt.Sprintf("GPUDevice %s/%s", e.Namespace, e.Name)
}
