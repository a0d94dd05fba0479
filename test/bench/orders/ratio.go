package main

import (
	"math/rand/v2"
	"slices"
)

// resamples is how many samples the bootstrap draws.
const resamples = 2000

// interval is a value and where it lies with a confidence of 95 %.
type interval struct{ value, low, high float64 }

// ratioOf compares the medians of two series that were measured side by side, in the same
// rounds: over divided by under. What it could have been it draws by the bootstrap: rounds
// with replacement, the same ones of both series, for what disturbs one disturbs the other,
// and in each of them samples with replacement.
func ratioOf(over, under [][]float64, r *rand.Rand) interval {
	var all []float64
	for range resamples {
		var a, b []float64
		for range over {
			round := r.IntN(len(over))
			a, b = draw(a, over[round], r), draw(b, under[round], r)
		}
		all = append(all, middle(a)/middle(b))
	}
	slices.Sort(all)
	return interval{
		value: middle(slices.Concat(over...)) / middle(slices.Concat(under...)),
		low:   quantile(all, 0.025), high: quantile(all, 0.975),
	}
}

// draw appends as many samples as there are, with replacement.
func draw(to, from []float64, r *rand.Rand) []float64 {
	for range from {
		to = append(to, from[r.IntN(len(from))])
	}
	return to
}

// middle returns the median, and sorts the values.
func middle(values []float64) float64 {
	slices.Sort(values)
	return quantile(values, 0.5)
}

// quantile returns a quantile of sorted values: between two of them, in proportion.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}
