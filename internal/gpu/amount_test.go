package gpu

import (
	"math"
	"testing"
)

func TestAddUnits(t *testing.T) {
	tests := map[string]struct{ a, b, want int64 }{
		"as ever":           {2, 3, 5},
		"taken back":        {2, -3, -1},
		"up to the largest": {math.MaxInt64 - 1, 1, math.MaxInt64},
		"too large":         {math.MaxInt64, 1, math.MaxInt64},
		"too small":         {math.MinInt64, -1, math.MinInt64},
		"the extremes":      {math.MinInt64, math.MaxInt64, -1},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			if got := AddUnits(tc.a, tc.b); got != tc.want {
				t.Errorf("%d + %d is %d, want %d", tc.a, tc.b, got, tc.want)
			}
		})
	}
}
