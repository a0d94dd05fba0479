package diagnose

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Table lints a host device table against the names that nodes serve. object
// names the CR that holds it. Nothing it finds is changed by gpuctl.
func Table(object string, t gpu.Table, nodes []gpu.Node) []Finding {
	l := lint{object: object, table: t, served: Served(nodes)}
	var out []Finding
	for _, e := range t.Entries {
		out = append(out, l.entry(e)...)
	}
	out = append(out, l.providers()...)
	out = append(out, l.repeats()...)
	return append(out, l.inTreeNames()...)
}

// Served returns the units of every extended resource over all nodes, zero
// counts left out.
func Served(nodes []gpu.Node) map[gpu.ResourceName]int64 {
	out := map[gpu.ResourceName]int64{}
	for i := range nodes {
		for name, count := range nodes[i].Allocatable {
			if count > 0 {
				out[name] += count
			}
		}
	}
	return out
}

type lint struct {
	object string
	table  gpu.Table
	served map[gpu.ResourceName]int64
}

func (l *lint) entry(e gpu.Entry) []Finding {
	if e.Odd {
		return nil // reported where it was read
	}
	var out []Finding
	add := func(code Code, more Values) {
		v := Values{"list": string(e.List), "selector": quoteEmpty(e.Selector), "name": string(e.Name)}
		maps.Copy(v, more)
		out = append(out, New(code, l.object, v))
	}
	if _, ok := e.ID(); e.List == gpu.ListPCI && !ok {
		add("GPU0305", nil)
	}
	if err := e.Name.Check(); err != nil {
		add("GPU0306", Values{"why": err.Error()})
	}
	if e.Name.IsContainer() {
		add("GPU0307", Values{"better": l.betterName(e)})
	}
	if served, ok := nearMiss(e.Name, l.served); ok {
		add("GPU0411", Values{"have": string(e.Name), "served": string(served)})
	}
	if id, ok := e.ID(); ok && !e.External && !e.Disabled && id.IsNVIDIA() && slices.Contains(gpu.DeviceIDs(e.Name), id.Device) {
		add("GPU0312", nil)
	}
	return out
}

// betterName suggests the plugin's name for the entry's card.
func (l *lint) betterName(e gpu.Entry) string {
	id, ok := e.ID()
	if !ok || !id.IsNVIDIA() {
		return ""
	}
	return ", " + string(gpu.Newest().Name(id.Device))
}

// nearMiss finds a served name that equals n but for case, blanks and dashes.
func nearMiss(n gpu.ResourceName, served map[gpu.ResourceName]int64) (gpu.ResourceName, bool) {
	if served[n] > 0 {
		return "", false
	}
	for _, name := range slices.Sorted(maps.Keys(served)) {
		if Alike(string(name), string(n)) {
			return name, true
		}
	}
	return "", false
}

// providers reports selectors and names that are served both in-tree and by an
// external plugin.
func (l *lint) providers() []Finding {
	type sides struct{ external, internal []string }
	bySelector, byName := map[string]*sides{}, map[gpu.ResourceName]*sides{}
	note := func(s *sides, e gpu.Entry, what string) *sides {
		if s == nil {
			s = &sides{}
		}
		if e.External && !slices.Contains(s.external, what) {
			s.external = append(s.external, what)
		}
		if !e.External && !slices.Contains(s.internal, what) {
			s.internal = append(s.internal, what)
		}
		return s
	}
	for _, e := range l.table.Entries {
		if e.Disabled || e.List == gpu.ListUSB || e.Odd {
			continue
		}
		selector := e.Selector
		if id, ok := e.ID(); ok {
			selector = id.Selector()
		}
		bySelector[selector] = note(bySelector[selector], e, string(e.Name))
		byName[e.Name] = note(byName[e.Name], e, e.Selector)
	}
	var out []Finding
	for selector, s := range bySelector {
		if len(s.external) > 0 && len(s.internal) > 0 {
			out = append(out, New("GPU0308", l.object, Values{
				"selector": selector, "external": strings.Join(s.external, ", "), "internal": strings.Join(s.internal, ", "),
			}))
		}
	}
	for name, s := range byName {
		if len(s.external) > 0 && len(s.internal) > 0 {
			out = append(out, New("GPU0309", l.object, Values{
				"name": string(name), "external": strings.Join(s.external, ", "), "internal": strings.Join(s.internal, ", "),
			}))
		}
	}
	return out
}

// repeats reports entries that are listed more than once.
func (l *lint) repeats() []Finding {
	type key struct {
		list     gpu.List
		selector string
		name     gpu.ResourceName
	}
	counts := map[key]int{}
	for _, e := range l.table.Entries {
		if e.List == gpu.ListUSB || e.Odd { // USB entries of one name differ in their selectors
			continue
		}
		counts[key{e.List, strings.ToLower(e.Selector), e.Name}]++
	}
	var out []Finding
	for k, n := range counts {
		if n > 1 {
			out = append(out, New("GPU0311", l.object, Values{"selector": quoteEmpty(k.selector), "name": string(k.name), "count": fmt.Sprint(n)}))
		}
	}
	return out
}

// inTreeNames reports ids that are listed in-tree under several names.
func (l *lint) inTreeNames() []Finding {
	names := map[gpu.ID][]string{}
	for _, e := range l.table.Entries {
		if id, ok := e.ID(); ok && !e.External && !slices.Contains(names[id], string(e.Name)) {
			names[id] = append(names[id], string(e.Name))
		}
	}
	var out []Finding
	for id, n := range names {
		if len(n) > 1 {
			out = append(out, New("GPU0310", l.object, Values{"selector": id.String(), "names": strings.Join(n, ", ")}))
		}
	}
	return out
}

func quoteEmpty(s string) string { return cmp.Or(s, `""`) }
