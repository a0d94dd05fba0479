package main

import (
	"math/rand/v2"
	"testing"
)

// series returns rounds of samples around a middle, each round as far off as the other
// series' round of the same number.
func series(middle float64, seed uint64) [][]float64 {
	shifts, noise := rand.New(rand.NewPCG(1, 1)), rand.New(rand.NewPCG(seed, 2))
	var out [][]float64
	for range 8 {
		shift := 1 + shifts.Float64()
		var round []float64
		for range 100 {
			round = append(round, middle*shift*(1+0.1*noise.NormFloat64()))
		}
		out = append(out, round)
	}
	return out
}

// The true ratio is within the interval, which is narrow although rounds differ by a
// factor of two: both sides have the same rounds.
func TestRatioOf(t *testing.T) {
	for name, tc := range map[string]struct{ over, under, most float64 }{
		"the same":       {4, 4, 0.1},
		"a fifth slower": {4.8, 4, 0.12},
		"twice as fast":  {2, 4, 0.05},
	} {
		t.Run(name, func(t *testing.T) {
			got := ratioOf(series(tc.over, 3), series(tc.under, 4), rand.New(rand.NewPCG(5, 5)))
			want := tc.over / tc.under
			if got.low > want || got.high < want || got.value < got.low || got.value > got.high {
				t.Errorf("ratio %+v, want %g within", got, want)
			}
			if width := got.high - got.low; width > tc.most || width <= 0 {
				t.Errorf("the interval is %g wide, want at most %g: %+v", width, tc.most, got)
			}
		})
	}
}

func TestQuantile(t *testing.T) {
	for name, tc := range map[string]struct {
		values  []float64
		q, want float64
	}{
		"one value":               {[]float64{3}, 0.975, 3},
		"the middle of an odd":    {[]float64{1, 2, 7}, 0.5, 2},
		"the middle of an even":   {[]float64{1, 2, 4, 7}, 0.5, 3},
		"the largest":             {[]float64{1, 2, 4}, 1, 4},
		"a tenth between the two": {[]float64{1, 2}, 0.1, 1.1},
	} {
		t.Run(name, func(t *testing.T) {
			if got := quantile(tc.values, tc.q); got != tc.want {
				t.Errorf("got %g, want %g", got, tc.want)
			}
		})
	}
}
