package wiring

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func TestContest(t *testing.T) {
	type state struct {
		Contested  bool
		Wait, Calm time.Duration
	}
	at := func(minutes ...float64) (out []revert) {
		for _, m := range minutes {
			out = append(out, revert{at: noon.Add(time.Duration(m * float64(time.Minute)))})
		}
		return out
	}
	tests := map[string]struct {
		reverts []revert
		wrote   float64 // minutes from noon
		now     float64
		want    state
	}{
		"never":                           {},
		"three at once":                   {reverts: at(0, 0, 0), now: 0},
		"the fourth waits for a minute":   {reverts: at(0, 1, 2, 3), wrote: 2.5, now: 3, want: state{true, 30 * time.Second, 7 * time.Minute}},
		"a minute is over":                {reverts: at(0, 1, 2, 3), wrote: 2.5, now: 3.5, want: state{true, 0, 6*time.Minute + 30*time.Second}},
		"the first is ten minutes old":    {reverts: at(0, 1, 2, 3), wrote: 9.9, now: 10},
		"and almost":                      {reverts: at(0, 1, 2, 3), wrote: 9, now: 9.5, want: state{true, 30 * time.Second, 30 * time.Second}},
		"six, and the third is to go":     {reverts: at(0, 1, 2, 3, 4, 5), wrote: 5, now: 6, want: state{true, 0, 6 * time.Minute}},
		"one every three minutes":         {reverts: at(0, 3, 6, 9), wrote: 8, now: 9, want: state{true, 0, time.Minute}},
		"one every four minutes is borne": {reverts: at(0, 4, 8, 12), wrote: 8, now: 12},
		"the clock was set back":          {reverts: at(5, 6, 7, 8), wrote: 8, now: 0, want: state{true, time.Minute, 15 * time.Minute}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			now := noon.Add(time.Duration(tc.now * float64(time.Minute)))
			c := contest{wrote: noon.Add(time.Duration(tc.wrote * float64(time.Minute)))}
			for _, r := range tc.reverts {
				c.add(r)
			}
			got := state{c.contested(now), c.wait(now), c.calm(now)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever somebody does, and whenever: from the fourth revert in ten minutes on no two
// writes are less than a minute apart, and without a contest each revert is repaired at
// once.
func TestContestIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var c contest
		var reverts, writes []time.Time
		now := noon
		for range rapid.IntRange(1, 60).Draw(t, "rounds") {
			now = now.Add(time.Duration(rapid.IntRange(0, 240).Draw(t, "seconds")) * time.Second)
			c.add(revert{at: now})
			reverts = append(reverts, now)
			wait := c.wait(now)
			recent := 0
			for _, r := range reverts {
				if now.Sub(r) < window {
					recent++
				}
			}
			if recent <= tolerated && wait > 0 {
				t.Fatalf("%d reverts, and it waits for %s", recent, wait)
			}
			now = now.Add(wait)
			if n := len(writes); n > 0 && c.contested(now) && now.Sub(writes[n-1]) < pause {
				t.Fatalf("writes at %s and %s, with %d reverts", writes[n-1], now, recent)
			}
			if calm := c.calm(now); calm > 0 && (!c.contested(now.Add(calm-1)) || c.contested(now.Add(calm))) {
				t.Fatalf("calm after %s is wrong", calm)
			}
			if len(c.reverts) > maxReverts {
				t.Fatalf("%d reverts are kept", len(c.reverts))
			}
			c.wrote = now
			writes = append(writes, now)
		}
	})
}
