package diagnose

import (
	"cmp"
	"errors"

	"github.com/gpuctl/gpuctl/internal/alloc"
	"github.com/gpuctl/gpuctl/internal/tenant"
)

// Refusal is an order or a start that is refused, as it is told: the finding is the
// operator's and may say everything, Tenant is for whoever asked.
type Refusal struct {
	Finding
	// Tenant names no node, and nothing of what others use or may use. It is one
	// line of at most MaxTenantText characters.
	Tenant string
	cause  error
}

// MaxTenantText is how many characters the text for a tenant has at most: a bind
// request's answer takes 1024.
const MaxTenantText = 1000

// Error tells the operator everything, the code first. It is for logs and diagnose.
func (r *Refusal) Error() string { return string(r.Code) + ": " + r.Message }

// ForTenant is the text of a webhook's answer, a condition or an Event, the code
// first: "GPU0611: the budget of tenant-acme does not allow 4 more of …".
func (r *Refusal) ForTenant() string { return string(r.Code) + ": " + r.Tenant }

// Unwrap returns the error that was refused for; nil for what is no error.
func (r *Refusal) Unwrap() error { return r.cause }

// Refused says what an error of a tenant's check or of a placement means, for the
// object that is refused. It is never nil: an error that it does not know, nil too,
// is GPU0601, and its text is for the operator only. A *Refusal keeps its code and
// object; what was wrapped around it is for the operator.
func Refused(err error, object string) *Refusal {
	var known *Refusal
	var fault *tenant.Refusal
	var short *tenant.Shortage
	var place *alloc.Refusal
	var r *Refusal
	switch {
	case err == nil:
		return refuse("GPU0601", object, Values{"problem": "no reason was given"})
	case errors.As(err, &known):
		return known.within(err)
	case errors.Is(err, tenant.ErrNotTenant):
		r = refuse("GPU0602", object, Values{"problem": oneLine(err.Error())})
	case errors.As(err, &fault):
		r = faulty(fault, err, object)
	case errors.As(err, &short):
		r = refuse("GPU0611", object, Values{
			"problem": oneLine(err.Error()), "text": short.ForTenant(),
			"key": short.Key.String(), "level": short.Level, "source": cmp.Or(short.Source, "what declares it"),
		})
	case errors.As(err, &place):
		r = unplaced(place, err, object)
	default:
		r = unknown(err, object)
	}
	r.cause = err
	return r
}

// within returns the refusal with the words of the error that wraps it.
func (r *Refusal) within(err error) *Refusal {
	if err == error(r) { //nolint:errorlint // whether it is wrapped at all
		return r
	}
	out := *r
	out.Message, out.cause = oneLine(err.Error()), err
	return &out
}

// faulty is a level that cannot be read.
func faulty(f *tenant.Refusal, err error, object string) *Refusal {
	code, ok := codeOfReason(f.Reason)
	if !ok {
		return unknown(err, object)
	}
	return refuse(code, object, Values{"problem": oneLine(err.Error()), "text": f.ForTenant(), "level": f.Level, "namespace": f.Namespace})
}

// unplaced is a set that has no node.
func unplaced(p *alloc.Refusal, err error, object string) *Refusal {
	code, ok := codeOfKind(p.Kind)
	if !ok {
		return unknown(err, object)
	}
	moves := ""
	if p.Exhausted {
		moves = "; perhaps reservations can be moved, but not all ways were tried: an order that nobody needs makes room when it is deleted"
	}
	return refuse(code, object, Values{"problem": oneLine(err.Error()), "text": p.ForTenant(), "moves": moves})
}

// unknown keeps what nobody foresaw, for the operator.
func unknown(err error, object string) *Refusal {
	return refuse("GPU0601", object, Values{"problem": oneLine(err.Error())})
}

// codeOfReason returns the code of a namespace that is refused.
func codeOfReason(r tenant.Reason) (Code, bool) {
	switch r {
	case tenant.UnknownNamespace:
		return "GPU0603", true
	case tenant.Terminating:
		return "GPU0604", true
	case tenant.Cycle:
		return "GPU0605", true
	case tenant.MissingParent:
		return "GPU0606", true
	case tenant.Contradiction:
		return "GPU0607", true
	case tenant.TreeUnreadable:
		return "GPU0608", true
	case tenant.NoRelease:
		return "GPU0609", true
	case tenant.BudgetUnreadable, tenant.BudgetNegative, tenant.BudgetFractional, tenant.BudgetTooLarge:
		return "GPU0610", true
	case tenant.InvalidAsk:
		return "GPU0613", true
	}
	return "", false
}

// codeOfKind returns the code of a set that has no node.
func codeOfKind(k alloc.Kind) (Code, bool) {
	switch k {
	case alloc.Invalid:
		return "GPU0701", true
	case alloc.Unserved:
		return "GPU0702", true
	case alloc.TooLarge:
		return "GPU0703", true
	case alloc.Constrained:
		return "GPU0704", true
	case alloc.Full:
		return "GPU0705", true
	}
	return "", false
}

// refuse makes a refusal of a catalogue entry.
func refuse(code Code, object string, values Values) *Refusal {
	e := catalogIndex()[code]
	if e == nil {
		e = &Entry{}
	}
	text := fill(cmp.Or(e.Tenant, e.Message), values)
	return &Refusal{Finding: New(code, object, values), Tenant: cut(oneLine(text))}
}

// cut cuts a text to MaxTenantText characters.
func cut(text string) string { return cutTo(text, MaxTenantText) }

func cutTo(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:most-1]) + "…"
	}
	return text
}
