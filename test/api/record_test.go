package api

import (
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const (
	tenantUID = "0b6f3f2c-7d1a-4c1e-9b1d-2a2f6a3f9f10"
	someUID   = "9f2b1c7e-0d53-4b0a-8a6e-5d1f0e7c4b21"
)

// record returns a GPUUsageRecord in YAML; what is empty is left out.
func record(name, what, rest string) string {
	return "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUUsageRecord\nmetadata: {name: " + name + "}\nspec: {tenant: {name: acme, uid: " + tenantUID +
		"}, consumer: {kind: Device, name: train-a, uid: " + someUID + "}, " + what + ", node: n1, start: '2026-11-30T12:00:00.000001Z', " + rest + "}"
}

func TestRecord(t *testing.T) {
	c := served(t)
	const name = tenantUID + "-0123456789abcdef01234567"
	const open = `{"tenant":{"name":"acme","uid":"` + tenantUID + `"},"consumer":{"kind":"Device","name":"train-a","uid":"` + someUID + `"},"node":"n1","start":"2026-11-30T12:00:00.000001Z",`
	for title, tc := range map[string]attempt{
		"open":            {object: record(name, "className: h200", "units: 4"), spec: open + `"className":"h200","units":4}`},
		"closed":          {object: record(name, "className: h200", "units: 4, end: '2026-11-30T12:00:00.000002Z', reason: Moved"), spec: open + `"className":"h200","units":4,"end":"2026-11-30T12:00:00.000002Z","reason":"Moved"}`},
		"of no time":      {object: record(name, "className: h200", "units: 4, end: '2026-11-30T12:00:00.000001Z', reason: Moved"), spec: open + `"className":"h200","units":4,"end":"2026-11-30T12:00:00.000001Z","reason":"Moved"}`},
		"of a raw pod":    {object: record(name, "resourceName: nvidia.com/GH100", "units: 4, estimated: true"), spec: open + `"resourceName":"nvidia.com/GH100","units":4,"estimated":true}`},
		"of another zone": {object: record(name, "className: h200", "units: 1, end: '2026-11-30T13:00:01.000000+01:00', reason: Lost"), spec: open + `"className":"h200","units":1,"end":"2026-11-30T13:00:01.000000+01:00","reason":"Lost"}`},

		"another tenant's name":      {object: record(someUID+"-0123", "className: h200", "units: 4"), errors: []string{"metadata.name must begin with spec.tenant.uid"}},
		"class and resource":         {object: record(name, "className: h200, resourceName: nvidia.com/GH100", "units: 4"), errors: []string{"spec: Invalid", "exactly one of className", "resourceName"}},
		"neither class nor resource": {object: record(name, "estimated: true", "units: 4"), errors: []string{"spec: Invalid", "exactly one of className"}},
		"end before start":           {object: record(name, "className: h200", "units: 4, end: '2026-11-30T12:00:00.000000Z', reason: Moved"), errors: []string{"spec.end", "must not be before start"}},
		"end without reason":         {object: record(name, "className: h200", "units: 4, end: '2026-11-30T13:00:00.000000Z'"), errors: []string{"spec: Invalid", "set end and reason together"}},
		"reason without end":         {object: record(name, "className: h200", "units: 4, reason: Moved"), errors: []string{"spec: Invalid", "set end and reason together"}},
		"reason in words":            {object: record(name, "className: h200", "units: 4, end: '2026-11-30T13:00:00.000000Z', reason: it moved"), errors: []string{"spec.reason"}},
		"no units":                   {object: record(name, "className: h200", "units: 0"), errors: []string{"spec.units", "greater than or equal to 1"}},
		"units left out":             {object: record(name, "className: h200", "estimated: false"), errors: []string{"spec.units: Required"}},
		"a time of no date":          {object: record(name, "className: h200", "units: 4, end: noon, reason: Moved"), errors: []string{"spec.end", "date-time"}},
		"consumer of another kind":   {object: strings.Replace(record(name, "className: h200", "units: 4"), "kind: Device", "kind: Job", 1), errors: []string{"spec.consumer.kind", `"Device", "Pod"`}},
	} {
		t.Run(title, func(t *testing.T) { tc.run(t, c) })
	}
}

func TestRecordChanges(t *testing.T) {
	c := served(t)
	const fixed = "only end, reason and estimated of an open record can be set"
	const closed = "a record that has an end is closed and cannot be changed"
	const end = `"end":"2026-11-30T13:00:00.000000Z","reason":"Released"`
	u := create(t, c, record(tenantUID+"-open", "className: h200", "units: 4"))
	changes(t, c, u, map[string]change{
		"close":             {patch: `{"spec":{` + end + `}}`},
		"close at a guess":  {patch: `{"spec":{` + end + `,"estimated":true}}`},
		"start":             {patch: `{"spec":{"start":"2026-11-30T12:30:00.000000Z"}}`, refused: []string{"spec: Invalid", fixed}},
		"units":             {patch: `{"spec":{"units":3}}`, refused: []string{fixed}},
		"node":              {patch: `{"spec":{"node":"n2"}}`, refused: []string{fixed}},
		"class":             {patch: `{"spec":{"className":"l40s"}}`, refused: []string{fixed}},
		"class to resource": {patch: `{"spec":{"className":null,"resourceName":"nvidia.com/GH100"}}`, refused: []string{fixed}},
		"consumer":          {patch: `{"spec":{"consumer":{"uid":"x"}}}`, refused: []string{fixed}},
		"tenant":            {patch: `{"spec":{"tenant":{"name":"other"}}}`, refused: []string{fixed}},
		"units and close":   {patch: `{"spec":{"units":3,` + end + `}}`, refused: []string{fixed}},
	})
	pod := create(t, c, record(tenantUID+"-pod", "resourceName: nvidia.com/GH100", "units: 4"))
	changes(t, c, pod, map[string]change{"resource": {patch: `{"spec":{"resourceName":"nvidia.com/GH200"}}`, refused: []string{fixed}}})

	done := create(t, c, record(tenantUID+"-closed", "className: h200", "units: 4, end: '2026-11-30T13:00:00.000000Z', reason: Released"))
	changes(t, c, done, map[string]change{
		"later end":  {patch: `{"spec":{"end":"2026-11-30T14:00:00.000000Z"}}`, refused: []string{"spec: Invalid", closed}},
		"reopen":     {patch: `{"spec":{"end":null,"reason":null}}`, refused: []string{closed}},
		"reason":     {patch: `{"spec":{"reason":"Moved"}}`, refused: []string{closed}},
		"estimated":  {patch: `{"spec":{"estimated":true}}`, refused: []string{closed}},
		"labels can": {patch: `{"metadata":{"labels":{"` + v1alpha1.LabelTenantUID + `":"` + tenantUID + `"}}}`},
	})
}
