package agent

import (
	"slices"
	"time"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// settler keeps passing losses from being reported. gpu-operator's vfio-manager
// takes every card's driver away at each of its starts and binds them again, and a
// reset takes a function off the bus for a moment: neither is a removal.
type settler struct {
	hold  time.Duration
	since map[gpu.Address]time.Time // when a loss was first seen
}

// settle returns what to report: what is seen, but for functions that were
// reported and are gone, or have lost their driver, for less than the hold. They
// stay as they were. last is nil when nothing was reported yet.
func (s *settler) settle(now time.Time, last *gpu.Host, seen gpu.Host) gpu.Host {
	if last == nil {
		return seen
	}
	at := map[gpu.Address]int{}
	for i := range seen.Functions {
		at[seen.Functions[i].Address] = i
	}
	out := seen
	out.Functions = slices.Clone(seen.Functions)
	losses := map[gpu.Address]time.Time{}
	for _, was := range last.Functions {
		i, there := at[was.Address]
		if there && !driverless(&was, &seen.Functions[i]) {
			continue
		}
		first, known := s.since[was.Address]
		if !known {
			first = now
		}
		losses[was.Address] = first
		switch {
		case now.Sub(first) >= s.hold: // it is true
		case there:
			out.Functions[i] = was
		default:
			out.Functions = append(out.Functions, was)
		}
	}
	s.since = losses
	out.Sort()
	return out
}

// driverless reports a function that had a driver and has none. Another card in
// the same slot is no loss of this one's driver.
func driverless(was, is *gpu.Function) bool {
	return was.ID == is.ID && was.Driver != "" && is.Driver == ""
}
