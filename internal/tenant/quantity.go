package tenant

import (
	"fmt"
	"math"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// readUnits reads a quantity as Kubernetes does ("8", "8000m" and "8e0" are 8,
// "1k" is 1000) and refuses what is no number of GPUs.
//
// resource.ParseQuantity has no answer to "1e2147483648" within a minute, and
// the Value of "10E" is 0: so texts and sizes are bounded here. The API server
// checks no quantity in a HelmRelease's values.
func readUnits(text string) (int64, *Fault) {
	fault := func(r Reason, format string, args ...any) (int64, *Fault) {
		return 0, &Fault{Reason: r, Detail: fmt.Sprintf(format, args...)}
	}
	if len(text) > gpu.MaxQuantity {
		return fault(BudgetUnreadable, "a quantity of %d characters; %d are allowed", len(text), gpu.MaxQuantity)
	}
	if i := strings.LastIndexAny(text, "eE"); i >= 0 && len(strings.TrimLeft(text[i+1:], "+-")) > gpu.MaxExponent {
		return fault(BudgetUnreadable, "quantity %q: its exponent has more than %d digits", text, gpu.MaxExponent)
	}
	q, err := resource.ParseQuantity(text)
	switch {
	case err != nil:
		return fault(BudgetUnreadable, "%q is no quantity", text)
	case q.Sign() < 0:
		return fault(BudgetNegative, "quantity %q is negative", text)
	case q.CmpInt64(math.MaxInt64) > 0:
		return fault(BudgetTooLarge, "quantity %q is larger than %d", text, int64(math.MaxInt64))
	}
	units := q.Value()
	if q.CmpInt64(units) != 0 {
		return fault(BudgetFractional, "quantity %q is no whole number", text)
	}
	return units, nil
}
