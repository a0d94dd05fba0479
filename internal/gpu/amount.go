package gpu

import "math"

// Amount is a number of units of one resource name. Class is "" for units that are
// taken by resource name, without a device; they count for no class.
type Amount struct {
	Resource ResourceName
	Class    string
	Units    int64
}

// MaxUnits is the most units that anything is taken to have or to ask for: sums of as
// many things as a cluster has do not overflow, and can be taken apart again.
const MaxUnits = math.MaxInt32

// AddUnits adds, and stops at the largest and the smallest int64: pods that nobody
// can place may ask for more than that.
func AddUnits(a, b int64) int64 {
	switch {
	case b > 0 && a > math.MaxInt64-b:
		return math.MaxInt64
	case b < 0 && a < math.MinInt64-b:
		return math.MinInt64
	}
	return a + b
}
