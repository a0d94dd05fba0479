package bind

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/client-go/util/workqueue"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// Entry is what was decided about one device.
type Entry struct {
	// Device is as it was decided on, whole, as the API server stored it. It is not
	// changed.
	Device *v1alpha1.GPUDevice
	// Placement and Answer are as they will be. Nil: there is none then.
	Placement *v1alpha1.Placement
	Answer    *v1alpha1.BindAnswer
}

// Result is what became of an entry.
type Result int

// Results of an entry.
const (
	// Void: nothing was written, and never will be. The device was changed since the
	// decision, or is gone or about to go.
	Void Result = iota
	// Written: the device says what was decided.
	Written
	// Refused: the API server takes no such write, for somebody's policy perhaps.
	// Nothing was written, and never will be.
	Refused
)

// Outcome is what became of the entry of the same index.
type Outcome struct {
	Result Result
	// Device is the device as it is now. Nil: it is gone, or not known after a refusal.
	Device *v1alpha1.GPUDevice
	// Err is the API server's refusal.
	Err error
}

// atOnce is how many devices are written at a time. More only wait for each other.
const atOnce = 16

// Commit writes a batch: first into the ledger, then to the devices. It returns when all
// of it is settled, which takes as long as the API server does not answer, or with an
// error, when ctx ends too. ErrInvalid: nothing was written. Any other error ends the
// leadership: what was not settled is left to the replay of whoever leads next.
func (l *Ledger) Commit(ctx context.Context, entries []Entry) ([]Outcome, error) {
	if !l.leads {
		return nil, fmt.Errorf("commit: %w: Lead first", ErrDeposed)
	}
	outcomes, at := make([]Outcome, len(entries)), make([]int, 0, len(entries))
	batch := make([]v1alpha1.LedgerEntry, 0, len(entries))
	for i, e := range entries {
		entry, err := e.check()
		switch {
		case err != nil:
			return nil, fmt.Errorf("commit: %w: entry %d: %w", ErrInvalid, i, err)
		case tooLate(e.Device, entry):
			outcomes[i] = Outcome{Device: e.Device.DeepCopy()}
		default:
			batch, at = append(batch, entry), append(at, i)
		}
	}
	if len(batch) == 0 {
		return outcomes, nil
	}
	next, err := l.next(batch)
	if err != nil {
		return nil, fmt.Errorf("commit: %w: %w", ErrInvalid, err)
	}
	l.leads = false
	if err := l.swap(ctx, next); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	errs := make([]error, len(batch))
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(batch), func(i int) {
		outcomes[at[i]], errs[i] = l.write(ctx, next.Batch[i], entries[at[i]].Device)
	})
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("commit: %w", err)
	}
	l.leads = true
	return outcomes, nil
}

// check returns the entry as it is in the ledger, or says what is wrong with it.
func (e Entry) check() (v1alpha1.LedgerEntry, error) {
	if e.Device == nil {
		return v1alpha1.LedgerEntry{}, errors.New("it has no device")
	}
	entry := v1alpha1.LedgerEntry{
		Namespace: e.Device.Namespace, Name: e.Device.Name, UID: e.Device.UID, ResourceVersion: e.Device.ResourceVersion,
		Placement: e.Placement, Answer: e.Answer,
	}
	if err := permitted(e.Device, entry); err != nil {
		return entry, fmt.Errorf("%s: %w", deviceName(entry), err)
	}
	return entry, nil
}

// next returns the ledger with the next batch, as a replay would read it.
func (l *Ledger) next(batch []v1alpha1.LedgerEntry) (v1alpha1.Ledger, error) {
	next := l.is
	next.Sequence++
	next.Unfenced, next.DecidedAt, next.Batch = false, l.time(), batch
	text, err := v1alpha1.EncodeLedger(next)
	if err != nil {
		return v1alpha1.Ledger{}, err
	}
	return v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: text})
}
