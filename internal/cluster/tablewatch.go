package cluster

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	watchtools "k8s.io/client-go/tools/watch"
)

// retryTable is when rows that could not be read anew are asked for again.
const retryTable = time.Second

// Watch hands on each row that changes after the given table was listed, one that is
// deleted as it was last, until ctx ends. The error says why nothing can be watched any
// more: the account may not, or the kind is gone. A connection that breaks is made again,
// and trouble told of it. Where the API server has forgotten what came since, the rows
// are listed anew, and those that have changed handed on.
func (t *Tables) Watch(ctx context.Context, from *metav1.Table, changed func(*metav1.Table) error, trouble func(error)) error {
	err := t.follow(ctx, from, changed, trouble)
	select {
	case <-ctx.Done(): // stopped, as one stops a watch
		return nil
	default:
		return err
	}
}

func (t *Tables) follow(ctx context.Context, from *metav1.Table, changed func(*metav1.Table) error, trouble func(error)) error {
	seen := versions{}
	seen.keep(from.Rows)
	for table := from; ; {
		err := t.watch(ctx, table.ResourceVersion, trouble, func(table *metav1.Table) error {
			seen.keep(table.Rows)
			return changed(table)
		})
		if forgotten(err) {
			table, err = t.again(ctx, trouble)
		}
		if err != nil {
			return err
		}
		if news := seen.keep(table.Rows); len(news) > 0 {
			table.Rows = news
			if err := changed(table); err != nil {
				return err
			}
		}
	}
}

// again lists the rows, once the API server answers.
func (t *Tables) again(ctx context.Context, trouble func(error)) (*metav1.Table, error) {
	for {
		table, err := t.List(ctx)
		if err == nil || final(err) || ctx.Err() != nil {
			return table, err
		}
		trouble(err)
		select {
		case <-ctx.Done():
		case <-time.After(retryTable):
		}
	}
}

// watch watches from a version on, and returns why it cannot go on.
func (t *Tables) watch(ctx context.Context, version string, trouble func(error), changed func(*metav1.Table) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	begin := func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
		selected := t.options()
		opts.LabelSelector, opts.FieldSelector, opts.Watch = selected.LabelSelector, selected.FieldSelector, true
		w, err := t.request().VersionedParams(&opts, metav1.ParameterCodec).Watch(ctx)
		switch {
		case err == nil || ctx.Err() != nil:
		case final(err):
			cancel(t.explain(err))
		default:
			trouble(err)
		}
		return w, err
	}
	retrying, err := watchtools.NewRetryWatcherWithContext(ctx, version, watcher(begin))
	if err != nil {
		return err
	}
	defer retrying.Stop()
	for event := range retrying.ResultChan() {
		table, ok := event.Object.(*metav1.Table)
		if !ok {
			return apierrors.FromObject(event.Object)
		}
		if err := openRows(table); err != nil {
			return err
		}
		if err := changed(table); err != nil {
			return err
		}
	}
	return fmt.Errorf("watch %s: %w", t.query.Resource, context.Cause(ctx))
}

// forgotten reports that the API server does not know any more what came since.
func forgotten(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// final reports an error that the next try would bring as well.
func final(err error) bool {
	return forgotten(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsBadRequest(err)
}

// watcher begins a watch.
type watcher func(context.Context, metav1.ListOptions) (watch.Interface, error)

// WatchWithContext implements cache.WatcherWithContext.
func (w watcher) WatchWithContext(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	return w(ctx, opts)
}

// versions are the resourceVersions of objects.
type versions map[types.UID]string

// keep takes note of rows, and returns those that say something new.
func (v versions) keep(rows []metav1.TableRow) []metav1.TableRow {
	var news []metav1.TableRow
	for _, row := range rows {
		object, err := meta.Accessor(row.Object.Object)
		if err != nil || v[object.GetUID()] != object.GetResourceVersion() {
			news = append(news, row)
		}
		if err == nil {
			v[object.GetUID()] = object.GetResourceVersion()
		}
	}
	return news
}
