package wiring

import (
	"slices"
	"time"
)

const (
	// window is how far back reverts count.
	window = 10 * time.Minute
	// tolerated is how many reverts within the window are repaired at once.
	tolerated = 3
	// pause is the least time between two writes to a target that is contested.
	pause = time.Minute
)

// revert is one time that somebody took away what gpuctl had written.
type revert struct {
	at      time.Time
	manager string // "" where the API server has no record
	lost    string
}

// contest remembers reverts and writes, and says when the next write may be made.
type contest struct {
	reverts []revert // oldest first; no longer than needed to tell
	wrote   time.Time
}

// add remembers a revert.
func (c *contest) add(r revert) {
	c.reverts = append(c.reverts, r)
	c.reverts = slices.DeleteFunc(c.reverts, func(old revert) bool { return r.at.Sub(old.at) >= window })
	if extra := len(c.reverts) - maxReverts; extra > 0 {
		c.reverts = slices.Delete(c.reverts, 0, extra)
	}
}

// maxReverts is as many as a GPUWiring can have.
const maxReverts = 16

// recent returns the reverts within the window.
func (c *contest) recent(now time.Time) []revert {
	i := slices.IndexFunc(c.reverts, func(r revert) bool { return now.Sub(r.at) < window })
	if i < 0 {
		return nil
	}
	return c.reverts[i:]
}

// contested reports that somebody reverts again and again.
func (c *contest) contested(now time.Time) bool { return len(c.recent(now)) > tolerated }

// wait returns for how long nothing may be written yet.
func (c *contest) wait(now time.Time) time.Duration {
	if !c.contested(now) {
		return 0
	}
	return min(pause, max(0, pause-now.Sub(c.wrote))) // a clock can be set back
}

// calm returns when the target will not be contested any more if nothing else happens;
// zero when it is not contested.
func (c *contest) calm(now time.Time) time.Duration {
	recent := c.recent(now)
	if len(recent) <= tolerated {
		return 0
	}
	return window - now.Sub(recent[len(recent)-tolerated-1].at)
}
