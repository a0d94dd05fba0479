package cluster

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

// IsController reports a Deployment of gpuctl's controller.
func IsController(d *manifest.Document) bool {
	return group(d) == "apps" && d.Kind() == "Deployment" && isComponent(d, v1alpha1.ComponentController)
}

// ControllerOf returns what documents say about the controller. at is when they were
// read, the zero time where that is not known: then a Lease counts as renewed. whole
// says that all Deployments and Leases of controllers are among them.
func ControllerOf(docs []manifest.Document, at time.Time, whole bool) (diagnose.Controller, error) {
	c := diagnose.Controller{Known: whole}
	var p posts
	for i := range docs {
		d := &docs[i]
		var err error
		switch {
		case IsController(d):
			err = readInto(&p.deployments, d)
		case group(d)+"/"+d.Kind() == "coordination.k8s.io/Lease" && d.Meta("name") == v1alpha1.ControllerLease:
			err = readInto(&p.leases, d)
		case group(d)+"/"+d.Kind() == v1alpha1.GroupName+"/GPUWiring" && d.Meta("name") == v1alpha1.WiringName:
			err = readWiring(&c, d)
		}
		if err != nil {
			return c, fmt.Errorf("%s: %w", d.Ref(), err)
		}
	}
	c.Runs = p.runs(at, whole)
	return c, nil
}

// posts are where controllers may run.
type posts struct {
	deployments []appsv1.Deployment
	leases      []coordinationv1.Lease
}

// runs returns the controllers by namespace and name. Who leads without a Deployment was
// started by hand.
func (p *posts) runs(at time.Time, whole bool) (out []diagnose.Deployment) {
	leads := map[string]string{} // by namespace; "" for nobody
	for i := range p.leases {
		leads[p.leases[i].Namespace] = holder(&p.leases[i], at)
	}
	led := map[string]bool{}
	for i := range p.deployments {
		d := &p.deployments[i]
		run := diagnose.Deployment{Namespace: d.Namespace, Name: d.Name, Desired: 1, Ready: int(d.Status.ReadyReplicas)}
		if d.Spec.Replicas != nil {
			run.Desired = int(*d.Spec.Replicas)
		}
		leader, told := leads[d.Namespace]
		switch {
		case leader != "":
			run.Leader, run.Led = leader, gpu.Present
		case told || whole:
			run.Led = gpu.Absent
		}
		led[d.Namespace] = true
		out = append(out, run)
	}
	for namespace, leader := range leads {
		if leader != "" && !led[namespace] {
			out = append(out, diagnose.Deployment{Namespace: namespace, Leader: leader, Led: gpu.Present})
		}
	}
	slices.SortFunc(out, func(a, b diagnose.Deployment) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	return out
}

// apart is how far the clocks of who renews a Lease and of who reads it may be apart.
const apart = 10 * time.Second

// holder returns the pod that holds a Lease, "" for nobody: a Lease that was not
// renewed for longer than it lasts is up for anybody.
func holder(l *coordinationv1.Lease, at time.Time) string {
	if l.Spec.HolderIdentity == nil {
		return ""
	}
	if !at.IsZero() {
		if _, alive := silence(l, at.Add(-apart)); !alive {
			return ""
		}
	}
	pod, _, _ := strings.Cut(*l.Spec.HolderIdentity, "_")
	return pod
}

// readWiring reads what the controller says. It repeats errors of others and names of
// field managers, so it is cleaned like any text of the cluster.
func readWiring(c *diagnose.Controller, d *manifest.Document) error {
	var w v1alpha1.GPUWiring
	if err := typed(d, &w); err != nil {
		return err
	}
	c.Target = Scrub(w.Status.Target)
	for _, r := range w.Status.Reverts {
		c.Reverts = append(c.Reverts, diagnose.Revert{Manager: Scrub(r.Manager), Lost: Scrub(r.Lost)})
	}
	condition := func(kind string) *diagnose.Condition {
		is := meta.FindStatusCondition(w.Status.Conditions, kind)
		if is == nil {
			return nil
		}
		return &diagnose.Condition{Status: string(is.Status), Reason: is.Reason, Message: Scrub(is.Message), Since: is.LastTransitionTime.UTC()}
	}
	c.Wired, c.Contested = condition(v1alpha1.ConditionWired), condition(v1alpha1.ConditionContested)
	return nil
}
