package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// Two request ids.
const (
	r1 = "0123456789abcdef0123456789abcdef"
	r2 = "fedcba9876543210fedcba9876543210"
)

// device returns a GPUDevice in YAML.
func device(metadata, spec string) string {
	return "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUDevice\nmetadata: {namespace: default, " + metadata + "}\nspec: " + spec
}

func TestDevice(t *testing.T) {
	c := served(t)
	const dotted = "metadata.name must have no dot and at most 60 characters"
	for name, tc := range map[string]attempt{
		"least":          {object: device("name: train-a", "{className: h200}"), spec: `{"className":"h200","count":1}`},
		"most":           {object: device("name: "+strings.Repeat("d", 60), "{className: "+strings.Repeat("c", 63)+", count: 64}"), spec: `{"className":"` + strings.Repeat("c", 63) + `","count":64}`},
		"generated name": {object: device("generateName: vm1-h200-", "{className: h200, count: 4}"), spec: `{"className":"h200","count":4}`},

		"no spec":                 {object: "apiVersion: gpuctl.dev/v1alpha1\nkind: GPUDevice\nmetadata: {name: a, namespace: default}", errors: []string{"spec: Required value"}},
		"no class":                {object: device("name: a", "{count: 1}"), errors: []string{"spec.className: Required value"}},
		"name with a dot":         {object: device("name: train.a", "{className: h200}"), errors: []string{dotted, "choose one like train-a"}},
		"name of 61 characters":   {object: device("name: "+strings.Repeat("d", 61), "{className: h200}"), errors: []string{dotted}},
		"generated name too long": {object: device("generateName: "+strings.Repeat("d", 58), "{className: h200}"), errors: []string{dotted}},
		"class empty":             {object: device("name: a", "{className: ''}"), errors: []string{"spec.className", "write one that kubectl get gpuclasses lists"}},
		"class in upper case":     {object: device("name: a", "{className: H200}"), errors: []string{"spec.className", "is not the name of a GPUClass"}},
		"class is a resource":     {object: device("name: a", "{className: nvidia.com/GH100}"), errors: []string{"spec.className", "is not the name of a GPUClass"}},
		"class too long":          {object: device("name: a", "{className: "+strings.Repeat("c", 64)+"}"), errors: []string{"spec.className", "may not be more than 63"}},
		"count 0":                 {object: device("name: a", "{className: h200, count: 0}"), errors: []string{"spec.count", "greater than or equal to 1"}},
		"count 65":                {object: device("name: a", "{className: h200, count: 65}"), errors: []string{"spec.count", "less than or equal to 64"}},
		"half a unit":             {object: device("name: a", "{className: h200, count: 0.5}"), errors: []string{"spec.count", "must be of type integer"}},
	} {
		t.Run(name, func(t *testing.T) { tc.run(t, c) })
	}
}

func TestDeviceChanges(t *testing.T) {
	c := served(t)
	u := create(t, c, device("name: changes", "{className: h200}"))
	immutable := []string{"spec: Invalid value", "an order cannot be changed: delete the device and create another one"}
	changes(t, c, u, map[string]change{
		"another class":         {patch: `{"spec":{"className":"l40s"}}`, refused: immutable},
		"another count":         {patch: `{"spec":{"count":2}}`, refused: immutable},
		"a default set":         {patch: `{"spec":{"count":1}}`},
		"a default taken away":  {patch: `{"spec":{"count":null}}`},
		"no class":              {patch: `{"spec":{"className":null}}`, refused: []string{"spec.className: Required"}},
		"no spec":               {patch: `{"spec":null}`, refused: []string{"spec: Required"}},
		"a label and finalizer": {patch: `{"metadata":{"labels":{"team":"a"},"finalizers":["gpuctl.dev/units"]}}`},
	})
	statusOnlyBySubresource(t, c, u, `{"status":{"state":"Pending"}}`)

	if with := create(t, c, device("name: with-status", "{className: h200}\nstatus: {state: Pending, origin: {kind: Order}}")); with.Object["status"] != nil {
		t.Errorf("a status was created: %v", with.Object["status"])
	}
	more := create(t, c, device("name: changes-2", "{className: h200, count: 2}"))
	changes(t, c, more, map[string]change{"back to the default": {patch: `{"spec":{"count":null}}`, refused: immutable}})
}

// statusOnlyBySubresource tries to write the status of an object with the object.
func statusOnlyBySubresource(t *testing.T, c *cluster.Cluster, u *unstructured.Unstructured, text string) {
	t.Helper()
	got, err := patch(t, c, u, text)
	if err != nil {
		t.Fatal(err)
	}
	if got.Object["status"] != nil {
		t.Errorf("the status was written: %v", got.Object["status"])
	}
	if got, err = patch(t, c, u, text, "status"); err != nil || got.Object["status"] == nil {
		t.Errorf("the status was not written: %v, %v", got, err)
	}
	if got, err = patch(t, c, u, `{"spec":{"className":"x","resourceName":"x/y"}}`, "status"); err == nil {
		same(t, got, "spec", marshal(t, u.Object["spec"]))
	}
}

func TestDeviceStatus(t *testing.T) {
	c := served(t)
	u := create(t, c, device("name: status", "{className: h200}"))
	const now = `"2026-11-30T12:00:00.000001Z"`
	placed := `"placement":{"node":"n1","resourceName":"nvidia.com/GH100","units":1,"since":` + now + `}`
	asked := `"attachment":{"vmiName":"vm1","requestID":"` + r1 + `","since":` + now + `},"bindRequest":{"requestID":"` + r1 + `","requestedAt":` + now + `,"devices":1`
	stateField := []string{"status.state", "state is not what placement, attachment and bindRequest say"}
	changes(t, c, u, map[string]change{
		"order":                   {patch: `{"status":{"state":"Pending","origin":{"kind":"Order"}}}`},
		"template":                {patch: `{"status":{"origin":{"kind":"Template","vm":{"name":"vm1","uid":"u1"}}}}`},
		"order of a VM":           {patch: `{"status":{"origin":{"kind":"Order","vm":{"name":"vm1","uid":"u1"}}}}`, refused: []string{"status.origin", "an order has none"}},
		"template of a lone VMI":  {patch: `{"status":{"origin":{"kind":"Template"}}}`},
		"template of a name":      {patch: `{"status":{"origin":{"kind":"Template","vm":{"name":"vm1"}}}}`, refused: []string{"status.origin.vm.uid: Required"}},
		"origin of another kind":  {patch: `{"status":{"origin":{"kind":"Gift"}}}`, refused: []string{"status.origin.kind", `"Order", "Template"`}},
		"held":                    {patch: `{"status":{"state":"Held",` + placed + `}}`},
		"held without placement":  {patch: `{"status":{"state":"Held"}}`, refused: stateField},
		"pending with placement":  {patch: `{"status":{"state":"Pending",` + placed + `}}`, refused: stateField},
		"no word":                 {patch: `{"status":{"state":"Running"}}`, refused: []string{"status.state", `"Pending", "Held", "Bound", "Attached", "Lost"`}},
		"asked":                   {patch: `{"status":{"state":"Held",` + placed + `,` + asked + `}}}`},
		"bound":                   {patch: `{"status":{"state":"Bound",` + placed + `,` + asked + `,"answer":{"answeredAt":` + now + `,"node":"n1"}}}}`},
		"refused":                 {patch: `{"status":{"state":"Held",` + placed + `,` + asked + `,"answer":{"answeredAt":` + now + `,"refusal":{"code":"GPU0501","message":"no"}}}}}`},
		"answer without a word":   {patch: `{"status":{` + asked + `,"answer":{"answeredAt":` + now + `}}}}`, refused: []string{"status.bindRequest.answer", "either a node or a refusal"}},
		"node and refusal":        {patch: `{"status":{` + asked + `,"answer":{"answeredAt":` + now + `,"node":"n1","refusal":{"code":"GPU0501","message":"no"}}}}}`, refused: []string{"status.bindRequest.answer", "either a node or a refusal"}},
		"refusal without a code":  {patch: `{"status":{` + asked + `,"answer":{"answeredAt":` + now + `,"refusal":{"code":"no","message":"no"}}}}}`, refused: []string{"status.bindRequest.answer.refusal.code"}},
		"set of none":             {patch: `{"status":{"bindRequest":{"requestID":"` + r1 + `","requestedAt":` + now + `,"devices":0}}}`, refused: []string{"status.bindRequest.devices"}},
		"attachment without id":   {patch: `{"status":{"attachment":{"vmiName":"vm1","since":` + now + `}}}`, refused: []string{"status.attachment.requestID: Required"}},
		"id of 31 digits":         {patch: `{"status":{"attachment":{"vmiName":"vm1","requestID":"` + r1[1:] + `","since":` + now + `}}}`, refused: []string{"status.attachment.requestID", "^[0-9a-f]{32}$"}},
		"id of 33 digits":         {patch: `{"status":{"attachment":{"vmiName":"vm1","requestID":"0` + r1 + `","since":` + now + `}}}`, refused: []string{"status.attachment.requestID", "more than 32"}},
		"id in upper case":        {patch: `{"status":{"attachment":{"vmiName":"vm1","requestID":"` + strings.ToUpper(r1) + `","since":` + now + `}}}`, refused: []string{"status.attachment.requestID", "^[0-9a-f]{32}$"}},
		"asked by half an id":     {patch: `{"status":{"bindRequest":{"requestID":"` + r1[:16] + `","requestedAt":` + now + `,"devices":1}}}`, refused: []string{"status.bindRequest.requestID", "^[0-9a-f]{32}$"}},
		"an empty UID is no UID":  {patch: `{"status":{"attachment":{"vmiName":"vm1","vmiUID":"","requestID":"` + r1 + `","since":` + now + `}}}`, refused: []string{"status.attachment.vmiUID", "at least 1"}},
		"placement without units": {patch: `{"status":{"placement":{"node":"n1","resourceName":"nvidia.com/GH100","units":0,"since":` + now + `}}}`, refused: []string{"status.placement.units"}},
	}, "status")
}

// Who made a device is written once.
func TestDeviceOriginStays(t *testing.T) {
	c := served(t)
	once := []string{"status.origin", "origin is written once"}
	for name, tc := range map[string]struct {
		origin string
		ways   map[string]change
	}{
		"order": {`{"kind":"Order"}`, map[string]change{
			"as it is":            {patch: `{"status":{"state":"Pending","origin":{"kind":"Order"}}}`},
			"made a template's":   {patch: `{"status":{"origin":{"kind":"Template"}}}`, refused: once},
			"nobody's":            {patch: `{"status":{"state":"Pending","origin":null}}`, refused: once},
			"no status any more":  {patch: `{"status":null}`, refused: once},
			"labels of the order": {patch: `{"metadata":{"labels":{"team":"a"}}}`},
		}},
		"template": {`{"kind":"Template","vm":{"name":"vm1","uid":"u1"}}`, map[string]change{
			"as it is":         {patch: `{"status":{"state":"Pending","origin":{"kind":"Template","vm":{"name":"vm1","uid":"u1"}}}}`},
			"made an order":    {patch: `{"status":{"origin":{"kind":"Order","vm":null}}}`, refused: once},
			"another VM's":     {patch: `{"status":{"origin":{"vm":{"uid":"u2"}}}}`, refused: once},
			"no VM's any more": {patch: `{"status":{"origin":{"vm":null}}}`, refused: once},
		}},
		"template-of-a-vmi": {`{"kind":"Template"}`, map[string]change{
			"as it is":      {patch: `{"status":{"state":"Pending","origin":{"kind":"Template"}}}`},
			"given to a VM": {patch: `{"status":{"origin":{"vm":{"name":"vm1","uid":"u1"}}}}`, refused: once},
			"made an order": {patch: `{"status":{"origin":{"kind":"Order"}}}`, refused: once},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			u := create(t, c, device("name: origin-"+name, "{className: h200}"))
			if _, err := patch(t, c, u, `{"status":{"origin":`+tc.origin+`}}`, "status"); err != nil {
				t.Fatal(err)
			}
			changes(t, c, u, tc.ways, "status")
		})
	}
}

// A VMI that has claimed a device has it until the same VM's next request.
func TestDeviceIsClaimedOnce(t *testing.T) {
	c := served(t)
	u := create(t, c, device("name: claimed", "{className: h200}"))
	const attached = `{"status":{"attachment":{"vmiName":"vm1","requestID":"` + r1 + `","since":"2026-11-30T12:00:00.000001Z"}}}`
	if _, err := patch(t, c, u, attached, "status"); err != nil {
		t.Fatal(err)
	}
	if _, err := patch(t, c, u, `{"status":{"attachment":{"vmiUID":"u1"}}}`, "status"); err != nil {
		t.Fatal(err)
	}
	twice := []string{"status.attachment.vmiUID", "until another request takes the device over"}
	changes(t, c, u, map[string]change{
		"another VMI":       {patch: `{"status":{"attachment":{"vmiUID":"u2"}}}`, refused: twice},
		"no VMI any more":   {patch: `{"status":{"attachment":{"vmiUID":null}}}`, refused: twice},
		"the same VMI":      {patch: `{"status":{"attachment":{"vmiUID":"u1"}}}`},
		"let go":            {patch: `{"status":{"attachment":null}}`},
		"taken over":        {patch: `{"status":{"attachment":{"requestID":"` + r2 + `","vmiUID":null}}}`},
		"taken and claimed": {patch: `{"status":{"attachment":{"requestID":"` + r2 + `","vmiUID":"u2"}}}`},
	}, "status")
}

// Each combination of the facts has one state, for the API server the same as for
// gpuctl; and the conditions say it, too.
func TestDeviceStates(t *testing.T) {
	c := served(t)
	u := create(t, c, device("name: states", "{className: h200}"))
	for name, s := range combinations() {
		t.Run(name, func(t *testing.T) {
			s.State = s.Derive()
			for _, condition := range []metav1.Condition{s.Held(v1alpha1.ReasonNoUnits, ""), s.Attached()} {
				condition.LastTransitionTime = metav1.NewTime(time.Unix(1, 0))
				s.Conditions = append(s.Conditions, condition)
			}
			if err := put(t, c, u, s); err != nil {
				t.Errorf("state %s: %v", s.State, err)
			}
			for _, other := range []v1alpha1.DeviceState{
				v1alpha1.DevicePending, v1alpha1.DeviceHeld, v1alpha1.DeviceBound, v1alpha1.DeviceAttached, v1alpha1.DeviceLost,
			} {
				if s.State = other; other != s.Derive() {
					refused(t, put(t, c, u, s), "status.state")
				}
			}
		})
	}
}

// put replaces the status of a device, without storing it.
func put(t *testing.T, c *cluster.Cluster, u *unstructured.Unstructured, s v1alpha1.GPUDeviceStatus) error {
	t.Helper()
	changed := u.DeepCopy()
	var status map[string]any
	if err := json.Unmarshal([]byte(marshal(t, s)), &status); err != nil {
		t.Fatal(err)
	}
	changed.Object["status"] = status
	_, err := c.Resource(u).UpdateStatus(t.Context(), changed, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}, FieldValidation: "Strict"})
	return err
}

// combinations returns all that placement, attachment and bind request can be.
func combinations() map[string]v1alpha1.GPUDeviceStatus {
	now := metav1.NewMicroTime(time.Unix(1, 0))
	placements := []*v1alpha1.Placement{
		nil,
		{Node: "n1", ResourceName: "nvidia.com/GH100", Units: 1, Since: now},
		{Node: "n1", ResourceName: "nvidia.com/GH100", Units: 1, Since: now, LostSince: &now},
	}
	attachments := []*v1alpha1.Attachment{
		nil,
		{VMIName: "vm1", RequestID: r1, Since: now},
		{VMIName: "vm1", RequestID: r1, Since: now, VMIUID: "u1", VMUID: "u2"},
	}
	requests := []*v1alpha1.BindRequest{
		nil,
		{RequestID: r1, RequestedAt: now, Devices: 1},
		{RequestID: r1, RequestedAt: now, Devices: 1, Answer: &v1alpha1.BindAnswer{AnsweredAt: now, Node: "n1"}},
		{RequestID: r1, RequestedAt: now, Devices: 1, Answer: &v1alpha1.BindAnswer{AnsweredAt: now, Node: "n2"}},
		{RequestID: r1, RequestedAt: now, Devices: 1, Answer: &v1alpha1.BindAnswer{AnsweredAt: now, Refusal: &v1alpha1.Refusal{Code: "GPU0501", Message: "no"}}},
		{RequestID: r2, RequestedAt: now, Devices: 1, Answer: &v1alpha1.BindAnswer{AnsweredAt: now, Node: "n1"}},
	}
	out := map[string]v1alpha1.GPUDeviceStatus{}
	for i, p := range placements {
		for j, a := range attachments {
			for k, r := range requests {
				out[fmt.Sprintf("placement %d, attachment %d, request %d", i, j, k)] = v1alpha1.GPUDeviceStatus{Placement: p, Attachment: a, BindRequest: r}
			}
		}
	}
	return out
}

func marshal(t *testing.T, v any) string {
	t.Helper()
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
