package books

import (
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
)

// JudgeSet says how what a VM asks for stands: what the classes of its templates give,
// what they would take of budgets, and on which node the set would start now, whatever
// else its launcher needs of one. It is for showing: nothing is changed.
func (b *Books) JudgeSet(s Set) diagnose.SetJudgement {
	b.settle()
	j := diagnose.SetJudgement{Known: true, Resources: map[string]gpu.ResourceName{}}
	var amounts []gpu.Amount
	for _, o := range s.New {
		if c, ok := b.classes[o.Class]; ok {
			j.Resources[o.Class] = c.Resource
			amounts = append(amounts, gpu.Amount{Resource: b.names.Base(c.Resource), Class: c.Name, Units: int64(o.Count)})
		}
	}
	if len(amounts) > 0 {
		j.Budgets, _ = b.ordered.Steps(s.Namespace, amounts...) // what cannot be read is a refusal
	}
	r := b.Begin()
	defer r.Close()
	r.Settle()
	room, err := r.Try(s)
	if err != nil {
		j.Refusal = diagnose.Refused(err, s.Object)
	}
	j.Node = room.Node
	return j
}
