package tenant

import (
	"fmt"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Check says whether a tenant may have the asked amounts on top of what is in
// use: nil, or ErrNotTenant, a *Refusal, or a *Shortage for the first level, from
// the tenant up, whose budget does not allow it. Without asks it says whether
// the tenant can be judged at all. It allocates nothing while it allows.
func (u *Use) Check(namespace string, asks ...gpu.Amount) error {
	chain, err := u.tree.Chain(namespace)
	if err != nil {
		return err
	}
	for _, a := range asks {
		if a.Units <= 0 || a.Resource == "" {
			return &Refusal{Namespace: namespace, Level: namespace, Fault: Fault{
				Reason: InvalidAsk, Detail: fmt.Sprintf("%d units of %q cannot be asked for", a.Units, string(a.Resource)),
			}}
		}
	}
	for l := chain.first; l != nil; l = l.up() {
		for i := range l.limits {
			limit := &l.limits[i]
			ask := u.tree.asked(asks, limit.Key)
			switch {
			case ask == 0:
			case limit.fault != nil:
				return &Refusal{Namespace: namespace, Level: l.namespace, Fault: *limit.fault}
			case u.of(l, limit.Key) > limit.Units-ask:
				return u.shortage(chain, l.step(limit, u, ask), asks)
			}
		}
	}
	return nil
}

// asked returns the units of the asks that count under the key.
func (t *Tree) asked(asks []gpu.Amount, k Key) (units int64) {
	for _, a := range asks {
		if t.counts(k, a) {
			units = gpu.AddUnits(units, a.Units)
		}
	}
	return units
}

// Step is the arithmetic of one budget.
type Step struct {
	Level           string
	Key             Key
	Limit, Use, Ask int64
	Source          string
}

// Missing returns by how much the limit is too small; 0 when it is not.
func (s Step) Missing() int64 { return max(0, gpu.AddUnits(gpu.AddUnits(s.Use, s.Ask), -s.Limit)) }

// String returns "tenant-acme nvidia.com/X: limit 8, in use 6, asked for 4".
func (s Step) String() string {
	return fmt.Sprintf("%s %s: limit %d, in use %d, asked for %d", s.Level, s.Key, s.Limit, s.Use, s.Ask)
}

func (l *Level) step(limit *Limit, u *Use, ask int64) Step {
	return Step{Level: l.namespace, Key: limit.Key, Limit: limit.Units, Use: u.of(l, limit.Key), Ask: ask, Source: limit.Source}
}

// Steps returns the arithmetic of every budget that bears on the asks, from the tenant
// up, whether they are allowed or not. Errors are those of a namespace that cannot be
// judged. A limit that cannot be read is left out: Check refuses for it.
func (u *Use) Steps(namespace string, asks ...gpu.Amount) ([]Step, error) {
	chain, err := u.tree.Chain(namespace)
	if err != nil {
		return nil, err
	}
	return u.steps(chain, asks), nil
}

func (u *Use) steps(chain Chain, asks []gpu.Amount) (out []Step) {
	for l := range chain.Levels() {
		for i := range l.limits {
			limit := &l.limits[i]
			if ask := u.tree.asked(asks, limit.Key); ask != 0 && limit.fault == nil {
				out = append(out, l.step(limit, u, ask))
			}
		}
	}
	return out
}

// Shortage is an ask that a budget does not allow.
type Shortage struct {
	Namespace string
	Step             // the first that blocks
	Steps     []Step // every budget that bears on the ask, from the tenant up
	left      int64
}

func (u *Use) shortage(chain Chain, first Step, asks []gpu.Amount) *Shortage {
	s := &Shortage{Namespace: chain.first.namespace, Step: first, Steps: u.steps(chain, asks), left: max(0, first.Limit-first.Use)}
	for l := range chain.Levels() {
		for i := range l.limits {
			limit := &l.limits[i]
			ask := u.tree.asked(asks, limit.Key)
			if ask == 0 {
				continue
			}
			step := l.step(limit, u, ask) // of 0 where the limit cannot be read
			if u.tree.counted(limit.Key) == u.tree.counted(first.Key) {
				s.left = min(s.left, max(0, step.Limit-step.Use))
			}
		}
	}
	return s
}

// Error tells the operator all the arithmetic. It names what others use: it is
// for logs and diagnose, not for the tenant.
func (s *Shortage) Error() string {
	steps := make([]string, len(s.Steps))
	for i, step := range s.Steps {
		steps[i] = step.String()
	}
	return fmt.Sprintf("namespace %q: %s has %d too few of %s (%s)",
		s.Namespace, s.Level, s.Missing(), s.Key, strings.Join(steps, "; "))
}

// ForTenant tells the tenant the level, and what all levels together leave to
// them under the key; nothing of what others use or may use.
func (s *Shortage) ForTenant() string {
	return fmt.Sprintf("the budget of %s does not allow %d more of %s; %d left for %s", s.Level, s.Ask, s.Key, s.left, s.Namespace)
}

// Headroom is how many more units a tenant may have.
type Headroom struct {
	Limited bool
	Units   int64
	Level   string // the nearest level that leaves so few
	Key     Key
}

// Headroom returns how many units of the resource name, ordered by the class or
// with "" by name, a tenant may have on top of what is in use: Check allows as
// many and no more. Errors are those of Check.
func (u *Use) Headroom(namespace string, a gpu.Amount) (Headroom, error) {
	a.Units = 1
	if err := u.Check(namespace, a); err != nil {
		if _, short := err.(*Shortage); !short { //nolint:errorlint // Check's own, not wrapped
			return Headroom{}, err
		}
	}
	var room Headroom
	for l := u.tree.levels[namespace]; l != nil; l = l.up() {
		for i := range l.limits {
			limit := &l.limits[i]
			left := max(0, limit.Units-u.of(l, limit.Key))
			if u.tree.counts(limit.Key, a) && (!room.Limited || left < room.Units) {
				room = Headroom{Limited: true, Units: left, Level: l.namespace, Key: limit.Key}
			}
		}
	}
	return room, nil
}
