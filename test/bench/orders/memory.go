package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
	"github.com/gpuctl/gpuctl/test/bench/process"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// countPatience is how long the leader may take to count all units, and to place one
// order.
const countPatience = 10 * time.Minute

// memoryOptions are what the flags say.
type memoryOptions struct {
	gpuctl                        string
	nodes, devices, pods, changes int
	rest                          time.Duration
	limit                         int64
}

// run measures what the leader of a large cluster needs: once it has counted all that
// there is, and after devices, nodes and pods have changed.
func (o *memoryOptions) run(ctx context.Context, out io.Writer) error {
	return testcluster.Use(ctx, os.Stderr, func(ctx context.Context, c testcluster.Running) error {
		ctx, cancel := context.WithCancelCause(ctx)
		defer cancel(nil)
		f, err := newFiller(c.Config, crowd{nodes: o.nodes, devices: o.devices, pods: o.pods})
		if err != nil {
			return err
		}
		began := time.Now()
		if err := f.fill(ctx); err != nil {
			return err
		}
		fmt.Fprintf(out, "%s; %d nodes of %d GPUs, %d devices, %d pods, made in %s; %s\n",
			machine(), o.nodes, gpusOfNode, o.devices, o.pods, time.Since(began).Round(time.Second), stored(ctx, c))
		if err := install(ctx, c, o.gpuctl); err != nil {
			return err
		}
		p, err := start(ctx, cancel, c, f.client, o.gpuctl)
		defer p.stop()
		if err != nil {
			return err
		}
		return errors.Join(o.observe(ctx, out, f, p), context.Cause(ctx))
	}, testcluster.APIOnly())
}

// observe prints what the controller uses at several times. The peak counts.
func (o *memoryOptions) observe(ctx context.Context, out io.Writer, f *filler, p *controller) error {
	var u process.Usage
	tell := func(when string) (err error) {
		if u, err = process.Of(p.cmd.Process.Pid); err == nil {
			fmt.Fprintf(out, "%-40s after %4.0f s: RSS %4.0f MiB, peak %4.0f MiB, CPU %4.0f s; load %s\n", when, time.Since(p.began).Seconds(),
				float64(u.Resident)/1024, float64(u.Peak)/1024, u.CPU.Seconds(), load())
		}
		return err
	}
	steps := []struct {
		when string
		do   func(context.Context) error
	}{
		{"it is ready, and leads", func(context.Context) error { return nil }},
		{"the classes have all units", f.counted},
		{fmt.Sprintf("%d devices, nodes and pods changed", o.changes), func(ctx context.Context) error { return f.change(ctx, o.changes) }},
		{fmt.Sprintf("nothing happened for %s", o.rest), func(ctx context.Context) error { return sleep(ctx, o.rest) }},
	}
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.when, err)
		}
		if err := tell(s.when); err != nil {
			return err
		}
	}
	if peak := u.Peak / 1024; peak > o.limit {
		return fmt.Errorf("the leader had %d MiB, want at most %d", peak, o.limit)
	}
	return nil
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// counted waits until the classes say what the nodes serve, and what is held of it.
func (f *filler) counted(ctx context.Context) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, countPatience, true, func(ctx context.Context) (bool, error) {
		last = f.count(ctx)
		return last == nil, nil
	})
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// count says what is missing in the classes' status.
func (f *filler) count(ctx context.Context) error {
	var all v1alpha1.GPUClassList
	if err := f.client.List(ctx, &all); err != nil {
		return err
	}
	total, held := 0, 0
	for i := range all.Items {
		if u := all.Items[i].Status.Units; u != nil {
			total, held = total+int(u.Total), held+int(u.Held)
		}
	}
	if total != gpusOfNode*f.nodes || held != f.devices {
		return fmt.Errorf("the classes have %d units, %d of them held; want %d and %d", total, held, gpusOfNode*f.nodes, f.devices)
	}
	return nil
}

// change does n things of each kind, one after the other: a device goes and another
// order gets its unit, a node gets another label of NVIDIA's, a pod goes.
func (f *filler) change(ctx context.Context, n int) error {
	for i := range min(n, f.nodes, f.devices, f.pods) {
		node := f.nodes - 1 - i
		label := fmt.Sprintf(`{"metadata":{"labels":{"nvidia.com/gpu.count":"%d"}}}`, gpusOfNode)
		pod := webPod(f.pods - 1 - i)
		err := errors.Join(
			f.client.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fleet.NodeName(node)}}, client.RawPatch(types.MergePatchType, []byte(label))),
			client.IgnoreNotFound(f.client.Delete(ctx, pod, client.GracePeriodSeconds(0))),
			f.replace(ctx, i),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// replace deletes a device, and orders its unit anew until there is room, and it is placed.
func (f *filler) replace(ctx context.Context, i int) error {
	old := &v1alpha1.GPUDevice{ObjectMeta: metav1.ObjectMeta{Namespace: tenantName(i), Name: deviceName(i)}}
	if err := f.client.Delete(ctx, old); err != nil {
		return err
	}
	now, ordered := orderIn(tenantName(i), i), false
	now.Spec.ClassName = className(i / gpusOfNode)
	err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, countPatience, true, func(ctx context.Context) (done bool, err error) {
		if ordered {
			err = f.client.Get(ctx, client.ObjectKeyFromObject(now), now)
			return now.Status.HoldsUnits(), err
		}
		err = f.client.Create(ctx, now)
		ordered = err == nil
		if apierrors.IsForbidden(err) {
			err = nil // there is no room yet
		}
		return false, err
	})
	if err != nil {
		return fmt.Errorf("%s/%s gets no unit: %w", now.Namespace, now.Name, err)
	}
	return nil
}

// stored says how large etcd's database is.
func stored(ctx context.Context, c testcluster.Running) string {
	core, err := kubernetes.NewForConfig(c.Config)
	if err != nil {
		return err.Error()
	}
	text, err := core.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	if err != nil {
		return err.Error()
	}
	for line := range bytes.Lines(text) {
		if name, value, ok := bytes.Cut(bytes.TrimSpace(line), []byte("} ")); ok && bytes.HasPrefix(name, []byte("apiserver_storage_size_bytes{")) {
			if size, err := strconv.ParseFloat(string(value), 64); err == nil {
				return fmt.Sprintf("etcd has %.0f MiB", size/(1<<20))
			}
		}
	}
	return "the size of etcd is not known"
}
