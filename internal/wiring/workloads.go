package wiring

import (
	"context"
	"time"

	"github.com/gpuctl/gpuctl/internal/cluster"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/patch"
)

// planner plans. What VMs ask for is read when the plan depends on it: before a first
// entry switches the permit check on, and before an entry goes.
func (c *Controller) planner(ctx context.Context) patch.Planner {
	fresh := false
	with := func(in patch.Input) (patch.Result, error) {
		in.Workloads, in.WorkloadsKnown = c.workloads.list, c.workloads.all
		return patch.Plan(in)
	}
	return func(in patch.Input) (patch.Result, error) {
		in.WorkloadsKnown = true
		result, err := patch.Plan(in)
		if err != nil || !patch.DependsOnWorkloads(&in, &result) {
			return result, err
		}
		// What was read a moment ago is good enough to hold something back.
		if fresh || c.Now().Sub(c.workloads.at) < workloadsLast {
			if result, err := with(in); err != nil || fresh || !patch.DependsOnWorkloads(&in, &result) {
				c.workloads.again = !fresh
				return result, err
			}
		}
		if err := c.readWorkloads(ctx); err != nil {
			return patch.Result{}, err
		}
		fresh = true
		return with(in)
	}
}

// workloadsLast is for how long what VMs ask for is not read again.
const workloadsLast = 3 * time.Second

// workloads are what VMs ask for, as it was last read.
type workloads struct {
	list []gpu.Workload
	all  bool // nothing that could not be read is missing
	at   time.Time
	// again says that they held something back after they were read.
	again bool
}

func (c *Controller) readWorkloads(ctx context.Context) error {
	docs, notes, err := c.Client.Workloads(ctx)
	if err != nil {
		return err
	}
	for _, note := range notes {
		c.Log.Info("some workloads are not known, so nothing is taken away", "reason", note)
	}
	facts, err := cluster.Read(docs)
	if err != nil {
		return err
	}
	c.workloads = workloads{list: facts.Workloads, all: len(notes) == 0, at: c.Now()}
	return nil
}
