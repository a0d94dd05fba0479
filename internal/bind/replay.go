package bind

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// replay does what earlier leaders have begun. A device that is still as it was decided on
// is written; every other entry is void.
func (l *Ledger) replay(ctx context.Context) error {
	errs := make([]error, len(l.is.Batch))
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(l.is.Batch), func(i int) { errs[i] = l.replayOne(ctx, l.is.Batch[i]) })
	return errors.Join(errs...)
}

func (l *Ledger) replayOne(ctx context.Context, e v1alpha1.LedgerEntry) error {
	var device *v1alpha1.GPUDevice
	err := l.repeat(ctx, "read "+deviceName(e), func(ctx context.Context) (answer, error) {
		found, got, err := l.look(ctx, e)
		if errors.Is(err, errUnchanged) {
			device, got, err = found.Device, done, nil
		}
		return got, err
	})
	if err != nil || device == nil {
		return err
	}
	out, err := l.write(ctx, e, device)
	if tooLarge(out.Err) {
		return err // nobody's write can come
	}
	return errors.Join(err, out.Err) // after a refusal another leader's write could still come
}

// fence spends the resourceVersions of all devices: a batch that is lost with its ledger
// may have any of them, also those of devices in use, which it may lose or heal. What was
// changed since the list, by whomever, is fenced by that.
func (l *Ledger) fence(ctx context.Context) error {
	all := &v1alpha1.GPUDeviceList{}
	err := l.repeat(ctx, "list GPUDevices", func(ctx context.Context) (answer, error) {
		err := l.Live.List(ctx, all)
		return answerOf(err), err
	})
	if err != nil {
		return err
	}
	errs := make([]error, len(all.Items))
	workqueue.ParallelizeUntil(context.Background(), atOnce, len(all.Items), func(i int) { errs[i] = l.fenceOne(ctx, &all.Items[i]) })
	return errors.Join(errs...)
}

func (l *Ledger) fenceOne(ctx context.Context, d *v1alpha1.GPUDevice) error {
	if d.Annotations[v1alpha1.AnnotationLedger] == string(l.stored.UID) {
		return nil
	}
	return l.repeat(ctx, fmt.Sprintf("annotate GPUDevice %s/%s", d.Namespace, d.Name), func(ctx context.Context) (answer, error) {
		changed := d.DeepCopy()
		metav1.SetMetaDataAnnotation(&changed.ObjectMeta, v1alpha1.AnnotationLedger, string(l.stored.UID))
		err := l.Client.Update(ctx, changed)
		if got := answerOf(err); got != conflict && got != gone && !tooLarge(err) {
			return got, err
		}
		return done, nil
	})
}
