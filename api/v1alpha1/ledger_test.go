package v1alpha1_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

const (
	header  = `"term":7,"holder":"gpuctl-0","sequence":4711,` + decided
	decided = `"decidedAt":"2026-11-30T12:00:02.000003Z"`
	placed  = `"placement":{"node":"worker-7","resourceName":"nvidia.com/A","units":4,"since":"2026-11-30T12:00:00.000001Z"}`
	answer  = `"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","node":"worker-7"}`
)

// entry returns an entry of a ledger as JSON.
func entry(name, uid, rest string) string {
	return `{"namespace":"acme","name":"` + name + `","uid":"` + uid + `","resourceVersion":"88123",` + rest + `}`
}

// refused returns an entry's answer as JSON.
func refused(code, message string) string {
	return `"answer":{"answeredAt":"2026-11-30T12:00:00.000001Z","refusal":{"code":"` + code + `","message":"` + message + `"}}`
}

// batch returns a ledger as JSON.
func batch(entries ...string) string {
	return `{` + header + `,"batch":[` + strings.Join(entries, ",") + `]}`
}

// What one leader writes another one reads, of another version perhaps.
func TestEncodeLedger(t *testing.T) {
	now := metav1.NewMicroTime(time.Date(2026, 11, 30, 13, 0, 0, 1999, time.FixedZone("east", 3600)))
	lost := metav1.NewMicroTime(now.Add(time.Second))
	decidedAt := metav1.NewMicroTime(time.Date(2026, 11, 30, 12, 0, 2, 3000, time.UTC))
	id := v1alpha1.LedgerEntry{Namespace: "acme", Name: "train-a", UID: "u1", ResourceVersion: "88123"}
	ledger := func(entries ...v1alpha1.LedgerEntry) v1alpha1.Ledger {
		return v1alpha1.Ledger{Term: 7, Holder: "gpuctl-0", Sequence: 4711, DecidedAt: decidedAt, Batch: entries}
	}
	with := func(p *v1alpha1.Placement, a *v1alpha1.BindAnswer) v1alpha1.LedgerEntry {
		e := id
		e.Placement, e.Answer = p, a
		return e
	}
	placement := v1alpha1.Placement{Node: "worker-7", ResourceName: "nvidia.com/A", Units: 4, Since: now}
	lostPlacement := placement
	lostPlacement.LostSince = &lost
	refusal := &v1alpha1.Refusal{Code: "GPU0501", Message: "no <node>"}
	unfenced := v1alpha1.Ledger{Term: 1, Holder: "gpuctl-0", DecidedAt: decidedAt, Unfenced: true}
	for name, tc := range map[string]struct {
		ledger v1alpha1.Ledger
		want   string
	}{
		"made anew":   {unfenced, `{"term":1,"holder":"gpuctl-0","sequence":0,` + decided + `,"unfenced":true,"batch":[]}`},
		"no batch":    {ledger(), batch()},
		"placed":      {ledger(with(&placement, nil)), batch(entry("train-a", "u1", placed))},
		"answered":    {ledger(with(&placement, &v1alpha1.BindAnswer{AnsweredAt: now, Node: "worker-7"})), batch(entry("train-a", "u1", placed+","+answer))},
		"taken away":  {ledger(with(nil, nil)), batch(entry("train-a", "u1", `"placement":null`))},
		"lost":        {ledger(with(&lostPlacement, nil)), batch(entry("train-a", "u1", placed[:len(placed)-1]+`,"lostSince":"2026-11-30T12:00:01.000001Z"}`))},
		"was refused": {ledger(with(nil, &v1alpha1.BindAnswer{AnsweredAt: now, Refusal: refusal})), batch(entry("train-a", "u1", `"placement":null,`+refused("GPU0501", `no \u003cnode\u003e`)))},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.EncodeLedger(tc.ledger)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("ledger (-want +got):\n%s", diff)
			}
			back, err := v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: got})
			if err != nil {
				t.Fatal(err)
			}
			if again, err := v1alpha1.EncodeLedger(back); err != nil || again != got {
				t.Errorf("read and written again: %s, %v", again, err)
			}
		})
	}
}

func TestDecodeLedger(t *testing.T) {
	const where = "read ledger of ConfigMap gpuctl-ledger: "
	a := entry("a", "u1", placed)
	swap := func(old, replacement string) string {
		if !strings.Contains(batch(a), old) {
			t.Fatalf("%s is not there", old)
		}
		return strings.Replace(batch(a), old, replacement, 1)
	}
	full := make([]string, v1alpha1.MaxBatch+1)
	for i := range full {
		full[i] = entry(fmt.Sprintf("d%d", i), fmt.Sprintf("u%d", i), placed)
	}
	for name, tc := range map[string]struct{ text, wrong string }{ // wrong: begins the error
		"with spaces": {text: strings.ReplaceAll(batch(a), ",", " ,\n")},
		"full":        {text: batch(full[:v1alpha1.MaxBatch]...)},

		"empty":                  {"", "it is empty"},
		"null":                   {"null", "it is null"},
		"cut off":                {batch(a)[:40], "unexpected EOF"},
		"something follows":      {batch() + "{}", "something follows"},
		"unknown field":          {swap(`"term"`, `"era":1,"term"`), `json: unknown field "era"`},
		"no term":                {swap(`"term":7,`, ``), "term: 0 is less than 1"},
		"term 0":                 {swap(`7`, `0`), "term: 0 is less than 1"},
		"term is null":           {swap(`7`, `null`), "term is null"},
		"term twice":             {swap(`"term":7`, `"term":7,"term":9`), "term is there twice"},
		"term in capitals":       {swap(`"term"`, `"TERM"`), `TERM: the field is written "term"`},
		"term in two spellings":  {swap(`"term":7`, `"term":7,"Term":9`), `Term: the field is written "term"`},
		"sequence with long s":   {swap(`"sequence"`, `"sequence":4711,"ſequence"`), `ſequence: the field is written "sequence"`},
		"term is no number":      {swap(`7`, `"7"`), "json: cannot unmarshal string into Go struct field"},
		"holder empty":           {swap(`gpuctl-0`, ``), "holder is empty"},
		"no sequence":            {swap(`,"sequence":4711`, ``), "sequence is missing"},
		"sequence negative":      {swap(`4711`, `-1`), "sequence: -1 is less than 0"},
		"no time of decision":    {swap(`,`+decided, ``), "decidedAt is empty"},
		"decided at null":        {swap(decided, `"decidedAt":null`), "decidedAt is null"},
		"unfenced is null":       {swap(`"batch"`, `"unfenced":null,"batch"`), "unfenced is null"},
		"no batch":               {`{` + header + `}`, "batch is missing"},
		"batch is null":          {`{` + header + `,"batch":null}`, "batch is null"},
		"129 entries":            {batch(full...), "batch has 129 entries; it can have 128"},
		"entry is null":          {batch(a, "null"), "batch[1]: it is null"},
		"unknown field inside":   {batch(a, entry("b", "u2", `"state":"Held",`+placed)), `batch[1]: json: unknown field "state"`},
		"unknown field deeper":   {batch(a, entry("b", "u2", strings.Replace(placed, `"units"`, `"count":1,"units"`, 1))), `batch[1]: json: unknown field "count"`},
		"no namespace":           {swap(`"namespace":"acme",`, ``), "batch[0].namespace is empty"},
		"no name":                {batch(a, entry("", "u2", placed)), "batch[1].name is empty"},
		"no UID":                 {batch(a, entry("b", "", placed)), "batch[1].uid is empty"},
		"no resourceVersion":     {swap(`"resourceVersion":"88123",`, ``), "batch[0].resourceVersion is empty"},
		"resourceVersion twice":  {swap(`"resourceVersion"`, `"resourceVersion":"1","resourceVersion"`), "batch[0].resourceVersion is there twice"},
		"version with long s":    {swap(`"resourceVersion"`, `"resourceVersion":"1","reſourceVersion"`), `batch[0].reſourceVersion: the field is written "resourceVersion"`},
		"no placement":           {batch(a, entry("b", "u2", answer)), "batch[1].placement is missing"},
		"no node":                {swap(`"node":"worker-7",`, ``), "batch[0].placement.node is empty"},
		"no resource name":       {swap(`nvidia.com/A`, ``), "batch[0].placement.resourceName is empty"},
		"no units":               {swap(`"units":4,`, ``), "batch[0].placement.units: 0 is not between 1 and 64"},
		"65 units":               {swap(`"units":4`, `"units":65`), "batch[0].placement.units: 65 is not between 1 and 64"},
		"placed at no time":      {swap(`,"since":"2026-11-30T12:00:00.000001Z"`, ``), "batch[0].placement.since is empty"},
		"lost at null":           {swap(`"since"`, `"lostSince":null,"since"`), "batch[0].placement.lostSince is null"},
		"lost at no time":        {swap(`"since"`, `"lostSince":"0001-01-01T00:00:00.000000Z","since"`), "batch[0].placement.lostSince is empty"},
		"answer is null":         {batch(entry("a", "u1", placed+`,"answer":null`)), "batch[0].answer is null"},
		"answer without a word":  {batch(entry("a", "u1", placed+`,`+strings.Replace(answer, `,"node":"worker-7"`, ``, 1))), "batch[0].answer is not either a node or a refusal"},
		"answered at no time":    {batch(entry("a", "u1", placed+`,"answer":{"node":"worker-7"}`)), "batch[0].answer.answeredAt is empty"},
		"node of 254":            {swap("worker-7", strings.Repeat("w", 254)), "batch[0].placement.node has 254 characters; it can have 253"},
		"resource name of 309":   {swap("nvidia.com/A", strings.Repeat("r", 309)), "batch[0].placement.resourceName has 309 characters; it can have 308"},
		"answer's node of 254":   {batch(entry("a", "u1", placed+`,`+strings.Replace(answer, "worker-7", strings.Repeat("w", 254), 1))), "batch[0].answer.node has 254 characters; it can have 253"},
		"no code of refusal":     {batch(entry("a", "u1", placed+`,`+refused("", "no"))), `batch[0].answer.refusal.code: "" does not match`},
		"another code":           {batch(entry("a", "u1", placed+`,`+refused("GPU05010", "no"))), `batch[0].answer.refusal.code: "GPU05010" does not match`},
		"refusal without a word": {batch(entry("a", "u1", placed+`,`+refused("GPU0501", ""))), "batch[0].answer.refusal.message is empty"},
		"refusal of 1,025":       {batch(entry("a", "u1", placed+`,`+refused("GPU0501", strings.Repeat("é", 1025)))), "batch[0].answer.refusal.message has 1025 characters; it can have 1024"},
		"refusal of 1,024":       {text: batch(entry("a", "u1", placed+`,`+refused("GPU0501", strings.Repeat("é", 1024))))},
		"a node and a refusal":   {batch(entry("a", "u1", placed+`,`+strings.Replace(refused("GPU0501", "no"), `"refusal"`, `"node":"worker-7","refusal"`, 1))), "batch[0].answer is not either a node or a refusal"},
		"a device twice":         {batch(a, entry("b", "u2", placed), entry("a", "u3", placed)), "batch[2]: batch[0] is of device acme/a, too"},
		"a UID twice":            {batch(a, entry("b", "u1", placed)), "batch[1].uid: batch[0] has u1, too"},
		"a list instead of that": {"[]", "json: cannot unmarshal array"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: tc.text})
			if (err != nil) != (tc.wrong != "") || err != nil && !strings.HasPrefix(err.Error(), where+tc.wrong) {
				t.Fatalf("error %v, want %q", err, tc.wrong)
			}
			if err != nil && !cmp.Equal(v1alpha1.Ledger{}, got) {
				t.Errorf("something was read: %+v", got)
			}
		})
	}
	_, err := v1alpha1.DecodeLedger(map[string]string{"other": batch()})
	says(t, err, []string{`read ConfigMap gpuctl-ledger: it has no key "ledger"`})
}

// An entry that the API server refuses can never be settled: what the ledger demands of
// its strings and units is what the GPUDevice's schema does.
func TestLedgerDemandsWhatTheSchemaDoes(t *testing.T) {
	text, err := os.ReadFile("../../charts/gpu-operator-hooks/files/crds/gpuctl.dev_gpudevices.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var crd any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		t.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(crd.(map[string]any)["spec"].(map[string]any)["versions"].([]any)[0].(map[string]any), //nolint:forcetypeassert // a panic tells as much
		"schema", "openAPIV3Schema", "properties", "status", "properties")
	got := map[string]string{}
	for _, path := range [][]string{{"placement"}, {"bindRequest", "properties", "answer"}} {
		schema, _, _ := unstructured.NestedMap(status, path...)
		demands(got, path[len(path)-1], schema)
	}
	want := map[string]string{
		"placement.node":         fmt.Sprint("1 to ", v1alpha1.MaxNode),
		"placement.resourceName": fmt.Sprint("1 to ", v1alpha1.MaxResourceName),
		"placement.units":        fmt.Sprint("1 to ", v1alpha1.MaxUnitsPerDevice),
		"answer.node":            fmt.Sprint("1 to ", v1alpha1.MaxNode),
		"answer.refusal.code":    v1alpha1.RefusalCode.String(),
		"answer.refusal.message": fmt.Sprint("1 to ", v1alpha1.MaxMessage),
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-ledger +schema):\n%s", diff)
	}
}

// demands collects what a schema demands of strings and numbers; times have a format.
func demands(into map[string]string, path string, schema map[string]any) {
	properties, _ := schema["properties"].(map[string]any)
	for name, property := range properties {
		demands(into, path+"."+name, property.(map[string]any)) //nolint:forcetypeassert // a panic tells as much
	}
	switch {
	case schema["pattern"] != nil:
		into[path] = fmt.Sprint(schema["pattern"])
	case schema["maxLength"] != nil:
		into[path] = fmt.Sprint(schema["minLength"], " to ", schema["maxLength"])
	case schema["maximum"] != nil:
		into[path] = fmt.Sprint(schema["minimum"], " to ", schema["maximum"])
	case schema["type"] != "object" && schema["format"] != "date-time":
		into[path] = "anything"
	}
}

// What could not be read again is not written.
func TestEncodeLedgerRefuses(t *testing.T) {
	_, err := v1alpha1.EncodeLedger(v1alpha1.Ledger{Term: 1, Holder: "a", DecidedAt: metav1.NewMicroTime(time.UnixMicro(1)), Batch: []v1alpha1.LedgerEntry{{Namespace: "acme", Name: "a", ResourceVersion: "1"}}})
	says(t, err, []string{"write ledger of ConfigMap gpuctl-ledger: batch[0].uid is empty"})
}

func TestLedgerReadBack(t *testing.T) {
	word := rapid.StringMatching(`[a-z<"\\é]{1,8}`)
	when := rapid.Custom(func(t *rapid.T) metav1.MicroTime {
		return metav1.NewMicroTime(time.UnixMicro(rapid.Int64Range(1, 1<<52).Draw(t, "µs")))
	})
	rapid.Check(t, func(t *rapid.T) {
		want := v1alpha1.Ledger{
			Term: rapid.Int64Min(1).Draw(t, "term"), Holder: word.Draw(t, "holder"), Sequence: rapid.Int64Min(0).Draw(t, "sequence"),
			DecidedAt: when.Draw(t, "decided at"), Unfenced: rapid.Bool().Draw(t, "unfenced"), Batch: []v1alpha1.LedgerEntry{},
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "entries") {
			e := v1alpha1.LedgerEntry{Namespace: word.Draw(t, "namespace"), Name: word.Draw(t, "name"), UID: types.UID(fmt.Sprint(i)), ResourceVersion: word.Draw(t, "version")}
			e.Name += fmt.Sprint(i)
			if rapid.Bool().Draw(t, "placed") {
				e.Placement = &v1alpha1.Placement{Node: word.Draw(t, "node"), ResourceName: word.Draw(t, "resource"), Units: rapid.Int32Range(1, 64).Draw(t, "units"), Since: when.Draw(t, "since")}
			}
			if rapid.Bool().Draw(t, "answered") {
				e.Answer = &v1alpha1.BindAnswer{AnsweredAt: when.Draw(t, "answered at"), Node: word.Draw(t, "answer")}
			}
			want.Batch = append(want.Batch, e)
		}
		text, err := v1alpha1.EncodeLedger(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v1alpha1.DecodeLedger(map[string]string{v1alpha1.LedgerKey: text})
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Fatalf("%v (-want +got):\n%s", err, diff)
		}
	})
}

// A ConfigMap takes 1 MiB.
func TestLongestLedgerFits(t *testing.T) {
	long := func(n, i int) string { return fmt.Sprintf("%0*d", n, i) }
	now := metav1.NewMicroTime(time.UnixMicro(1))
	l := v1alpha1.Ledger{Term: 1, Holder: long(253, 0), DecidedAt: now}
	for i := range v1alpha1.MaxBatch {
		l.Batch = append(l.Batch, v1alpha1.LedgerEntry{
			Namespace: long(63, i), Name: long(v1alpha1.MaxDeviceName, i), UID: types.UID(long(63, i)), ResourceVersion: long(20, i),
			Placement: &v1alpha1.Placement{Node: long(253, i), ResourceName: long(308, i), Units: 64, Since: now, LostSince: &now},
			Answer:    &v1alpha1.BindAnswer{AnsweredAt: now, Refusal: &v1alpha1.Refusal{Code: "GPU0501", Message: strings.Repeat("<", 1024)}},
		})
	}
	text, err := v1alpha1.EncodeLedger(l)
	if err != nil || len(text) >= 1<<20 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}
