package diagnose

import (
	_ "embed" // for the catalogue's data file
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Code names one kind of finding. A code never changes its meaning; one that is
// no longer reported stays in the catalogue, marked as retired.
type Code string

// Severity says how bad a finding is.
type Severity string

// The severities, mildest first.
const (
	Info    Severity = "info"
	Warning Severity = "warning"
	Error   Severity = "error"
)

// Level orders severities: 0 info, 1 warning, 2 error.
func (s Severity) Level() int { return slices.Index([]Severity{Info, Warning, Error}, s) }

// Entry is one kind of finding as the catalogue holds it. Message, Tenant and Hint
// have {placeholders} that are filled in.
type Entry struct {
	Code     Code     `json:"code"`
	Severity Severity `json:"severity"`
	Link     Link     `json:"link,omitempty"` // of the chain, "" when it is on none
	Title    string   `json:"title"`
	Message  string   `json:"message"`
	// Tenant is the message for a tenant who is refused: "" where Message can be
	// shown to one, "{text}" where the error has words of its own for them.
	Tenant  string `json:"tenant,omitempty"`
	Hint    string `json:"hint"`
	About   string `json:"about"`
	Retired bool   `json:"retired,omitempty"`
}

// Anchor is the entry's place in docs/codes.md.
func (e Entry) Anchor() string { return "docs/codes.md#" + strings.ToLower(string(e.Code)) }

// ForTenant returns the message for a tenant where the catalogue has one of its own; ""
// where it is Message, or the error's.
func (e Entry) ForTenant() string {
	if e.Tenant == textOfError {
		return ""
	}
	return e.Tenant
}

// textOfError stands for the words that an error has for tenants.
const textOfError = "{text}"

// Areas names the ranges of codes: the two digits behind "GPU".
func Areas() []Area {
	return []Area{
		{"01", "agent and hook"},
		{"02", "host"},
		{"03", "host device table and feature gate"},
		{"04", "resource names and device plugin"},
		{"05", "VM and launcher"},
		{"06", "orders and budgets"},
		{"07", "placement"},
		{"08", "policy"},
	}
}

// Area is one range of codes.
type Area struct{ Digits, Name string }

// Area returns the area a code belongs to; ok is false for a malformed code.
func (c Code) Area() (Area, bool) {
	for _, a := range Areas() {
		if strings.HasPrefix(string(c), "GPU"+a.Digits) {
			return a, true
		}
	}
	return Area{}, false
}

//go:embed catalog.json
var catalogJSON []byte

var catalog = sync.OnceValue(func() []Entry {
	var entries []Entry
	if err := json.Unmarshal(catalogJSON, &entries); err != nil {
		panic(fmt.Sprintf("embedded catalogue: %v", err)) // a test reads it
	}
	return entries
})

var catalogIndex = sync.OnceValue(func() map[Code]*Entry {
	index := map[Code]*Entry{}
	for i, e := range catalog() {
		index[e.Code] = &catalog()[i]
	}
	return index
})

// Catalog returns every entry, in the order of codes.
func Catalog() []Entry { return slices.Clone(catalog()) }

// Lookup returns the entry of a code, in any casing.
func Lookup(code string) (Entry, bool) {
	e, ok := catalogIndex()[Code(strings.ToUpper(code))]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}
