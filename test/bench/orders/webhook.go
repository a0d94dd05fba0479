package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

// webhookPath is where the chart has orders judged.
const webhookPath = "/validate-gpuctl-dev-v1alpha1-gpudevice"

// webhookOptions are what the flags say.
type webhookOptions struct {
	gpuctl                         string
	nodes, devices, orders, rounds int
	most                           float64
}

// side is a cluster with its controller.
type side struct {
	client     client.Client // of an administrator, who may order, too
	controller *controller
	direct     *http.Client // of the webhook, without the API server
}

// probe is a way to order whose time is taken, on both sides.
type probe struct {
	name  string
	order func(ctx context.Context, s *side, i int) error
	// judged says that it is gpuctl's answer that is waited for: the ratio counts.
	judged bool
	times  [2][][]float64 // ms, by side and round
}

func probes() []*probe {
	return []*probe{
		{name: "create, judged by the webhook", order: judged, judged: true},
		{name: "create where no webhook is asked", order: exempt},
		{name: "the webhook asked directly", order: asked, judged: true},
	}
}

// run compares how long an order takes in a cluster with no devices and in one with
// many.
func (o *webhookOptions) run(ctx context.Context, out io.Writer) error {
	const free = 3 // of each kind one, so that orders fit on both sides
	return o.onBoth(ctx, free, func(ctx context.Context, sides [2]*side) error {
		fmt.Fprintf(out, "%s; %d nodes of %d GPUs, %d tenants below one other; %d rounds of %d orders, one at a time, all dry runs: the API server does all but store them\n",
			machine(), o.nodes, gpusOfNode, tenants, o.rounds, o.orders)
		all := probes()
		if err := o.compare(ctx, sides, all, func(context.Context, int) error { return nil }); err != nil {
			return err
		}
		return o.printRatios(out, all)
	})
}

// onBoth hands over a cluster with no devices and one with many, on which so many nodes are
// free, each with its controller.
func (o *webhookOptions) onBoth(ctx context.Context, free int, use func(context.Context, [2]*side) error) error {
	if (o.nodes-free)*gpusOfNode < o.devices || o.devices < 1 || o.rounds < 1 || o.orders < 1 {
		return fmt.Errorf("%d rounds of %d orders beside %d devices on %d nodes of %d GPUs: want at least one of each, and %d nodes that are free",
			o.rounds, o.orders, o.devices, o.nodes, gpusOfNode, free)
	}
	return testcluster.Use(ctx, os.Stderr, func(ctx context.Context, empty testcluster.Running) error {
		return testcluster.Use(ctx, os.Stderr, func(ctx context.Context, full testcluster.Running) error {
			ctx, cancel := context.WithCancelCause(ctx)
			defer cancel(nil)
			var sides [2]*side
			defer func() {
				for _, s := range sides {
					s.stop()
				}
			}()
			for i, c := range []testcluster.Running{empty, full} {
				var err error
				if sides[i], err = o.side(ctx, cancel, c, crowd{nodes: o.nodes, devices: i * o.devices}); err != nil {
					return err
				}
			}
			return use(ctx, sides)
		}, testcluster.APIOnly())
	}, testcluster.APIOnly())
}

// settled is how long a controller is left alone once it is ready.
const settled = 10 * time.Second

// side fills a cluster and starts its controller, which knows all that there is. It is
// returned also with an error, if there is a controller to stop.
func (o *webhookOptions) side(ctx context.Context, cancel context.CancelCauseFunc, c testcluster.Running, of crowd) (*side, error) {
	f, err := newFiller(c.Config, of)
	if err != nil {
		return nil, err
	}
	if err := f.fill(ctx); err != nil {
		return nil, err
	}
	if err := install(ctx, c, o.gpuctl); err != nil {
		return nil, err
	}
	s := &side{client: f.client, direct: &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}},
	}}
	if s.controller, err = start(ctx, cancel, c, f.client, o.gpuctl); err != nil {
		return s, err
	}
	if err := errors.Join(f.counted(ctx), s.refuses(ctx)); err != nil {
		return s, err
	}
	select {
	case <-ctx.Done():
		return s, context.Cause(ctx)
	case <-time.After(settled):
		return s, nil
	}
}

func (s *side) stop() {
	if s != nil {
		s.controller.stop()
	}
}

// refuses checks that orders are judged: one of an unknown class is refused.
func (s *side) refuses(ctx context.Context) error {
	order := orderIn(tenantName(0), 0)
	order.Spec.ClassName = "unknown"
	if err := s.client.Create(ctx, order, client.DryRunAll); !apierrors.IsForbidden(err) {
		return fmt.Errorf("an order of an unknown class should be forbidden: %w", cmp.Or(err, errors.New("it is not")))
	}
	return nil
}

// compare takes the sides and the probes in turn, order by order, after what is done before
// each round. A first round is not counted.
func (o *webhookOptions) compare(ctx context.Context, sides [2]*side, all []*probe, before func(ctx context.Context, round int) error) error {
	for round := range 1 + o.rounds {
		if err := before(ctx, round); err != nil {
			return errors.Join(context.Cause(ctx), err)
		}
		for _, p := range all {
			for side := range sides {
				p.times[side] = append(p.times[side], nil)
			}
		}
		for i := range o.orders {
			for turn := range 2 {
				side := (i + turn) % 2
				for _, p := range all {
					began := time.Now()
					if err := p.order(ctx, sides[side], i); err != nil {
						return errors.Join(context.Cause(ctx), fmt.Errorf("%s: %w", p.name, err))
					}
					p.times[side][round] = append(p.times[side][round], float64(time.Since(began))/float64(time.Millisecond))
				}
			}
		}
	}
	return nil
}

func (o *webhookOptions) printRatios(out io.Writer, all []*probe) error {
	fmt.Fprintf(out, "%-34s %-28s %-28s %s\n", "ms, median [p5..p95]", "no devices", fmt.Sprintf("%d devices", o.devices), "ratio of the medians [95 %]")
	var errs []error
	seed := rand.New(rand.NewPCG(1, 1))
	for _, p := range all {
		none, many := p.times[0][1:], p.times[1][1:]
		ratio := ratioOf(many, none, seed)
		fmt.Fprintf(out, "%-34s %-28s %-28s %.3f [%.3f..%.3f]\n", p.name, spread(none), spread(many), ratio.value, ratio.low, ratio.high)
		if p.judged && ratio.high > o.most {
			errs = append(errs, fmt.Errorf("%s takes up to %.3f times as long beside %d devices, want at most %.3f", p.name, ratio.high, o.devices, o.most))
		}
	}
	return errors.Join(errs...)
}

func spread(rounds [][]float64) string {
	all := slices.Concat(rounds...)
	slices.Sort(all)
	return fmt.Sprintf("%.2f [%.2f..%.2f]", quantile(all, 0.5), quantile(all, 0.05), quantile(all, 0.95))
}

func orderIn(namespace string, i int) *v1alpha1.GPUDevice {
	return &v1alpha1.GPUDevice{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "GPUDevice"},
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("new-%d", i)},
		Spec:       v1alpha1.GPUDeviceSpec{ClassName: className(i), Count: 1},
	}
}

func judged(ctx context.Context, s *side, i int) error {
	return s.client.Create(ctx, orderIn(tenantName(i), i), client.DryRunAll)
}

// exempt orders in gpuctl's own namespace, about which the webhook is not asked.
func exempt(ctx context.Context, s *side, i int) error {
	return s.client.Create(ctx, orderIn(fleet.Namespace, i), client.DryRunAll)
}

// asked asks as the API server does.
func asked(ctx context.Context, s *side, i int) error {
	d := orderIn(tenantName(i), i)
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	dry := true
	review := &admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Request: &admissionv1.AdmissionRequest{
			UID: "3b2c1d0e-4f50-4162-8374-95a6b7c8d9e0", Kind: metav1.GroupVersionKind{Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Kind: "GPUDevice"},
			Resource:  metav1.GroupVersionResource{Group: v1alpha1.GroupName, Version: v1alpha1.GroupVersion.Version, Resource: "gpudevices"},
			Namespace: d.Namespace, Name: d.Name, Operation: admissionv1.Create, Object: runtime.RawExtension{Raw: text}, DryRun: &dry,
		},
	}
	body, err := json.Marshal(review)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+s.controller.webhook+webhookPath, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := s.direct.Do(req)
	if err != nil {
		return err
	}
	var answer admissionv1.AdmissionReview
	if err := errors.Join(json.NewDecoder(resp.Body).Decode(&answer), resp.Body.Close()); err != nil {
		return err
	}
	if answer.Response == nil || !answer.Response.Allowed {
		return fmt.Errorf("the answer is %+v", answer.Response)
	}
	return nil
}
