package v1alpha1

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// LedgerName is the name of the ConfigMap, in gpuctl's own namespace, that fences the
// leaders of the binder: docs/design/binding.md.
const LedgerName = "gpuctl-ledger"

// LedgerKey is its key with the ledger, as Ledger encodes it.
const LedgerKey = "ledger"

// MaxBatch is how many entries a batch of the ledger can have.
const MaxBatch = 128

// Ledger says who leads, and what the leader is writing.
//
// +kubebuilder:object:generate=false
type Ledger struct {
	// Term counts leaders; the first is 1.
	Term int64 `json:"term"`
	// Holder is the leader of this term.
	Holder string `json:"holder"`
	// Sequence counts the batches of all terms.
	Sequence int64 `json:"sequence"`
	// DecidedAt is when the batch was decided: conditions that change by it do so then,
	// whoever writes them.
	DecidedAt metav1.MicroTime `json:"decidedAt"`
	// Unfenced says that the ledger was made anew, and that writes of a leader before
	// it may still come.
	Unfenced bool `json:"unfenced,omitempty"`
	// Batch is what the leader writes now: each device once, in any order.
	Batch []LedgerEntry `json:"batch"`
}

// LedgerEntry is one write of one device's status: what placement and answer will be.
// It is void when the device has another UID or resourceVersion, or is gone.
//
// +kubebuilder:object:generate=false
type LedgerEntry struct {
	Namespace       string    `json:"namespace"`
	Name            string    `json:"name"`
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion"`
	// Placement is that of the device, also where it moves, is lost or heals. Nil, which
	// is written as null: it is taken away.
	Placement *Placement `json:"placement"`
	// Answer is that of the device's bind request: a node, or a refusal that the device
	// has already, for it is never first written by the ledger. Nil: it has none.
	Answer *BindAnswer `json:"answer,omitempty"`
}

// EncodeLedger returns the value of LedgerKey: the same bytes for the same ledger. Times
// are cut to microseconds. The error is for a ledger that DecodeLedger would not take.
func EncodeLedger(l Ledger) (string, error) {
	if err := l.check(); err != nil {
		return "", fmt.Errorf("write %s of ConfigMap %s: %w", LedgerKey, LedgerName, err)
	}
	if l.Batch == nil {
		l.Batch = []LedgerEntry{}
	}
	out, err := json.Marshal(l)
	if err != nil {
		return "", fmt.Errorf("write %s of ConfigMap %s: %w", LedgerKey, LedgerName, err)
	}
	return string(out), nil
}

// DecodeLedger reads the value of LedgerKey out of the data of the ConfigMap. It guesses
// nothing: what EncodeLedger could not have written is an error, which names the field.
func DecodeLedger(data map[string]string) (Ledger, error) {
	text, ok := data[LedgerKey]
	if !ok {
		return Ledger{}, fmt.Errorf("read ConfigMap %s: it has no key %q", LedgerName, LedgerKey)
	}
	l, err := decodeLedger(text)
	if err == nil {
		err = l.check()
	}
	if err != nil {
		return Ledger{}, fmt.Errorf("read %s of ConfigMap %s: %w", LedgerKey, LedgerName, err)
	}
	return l, nil
}

// decodeLedger reads the batch entry by entry, so that errors can say which one it is.
func decodeLedger(text string) (Ledger, error) {
	var outer struct {
		Ledger

		Batch []json.RawMessage `json:"batch"`
	}
	if err := decode(text, &outer); err != nil {
		return Ledger{}, err
	}
	l := outer.Ledger
	l.Batch = make([]LedgerEntry, len(outer.Batch))
	for i, entry := range outer.Batch {
		if err := decode(string(entry), &l.Batch[i]); err != nil {
			return Ledger{}, fmt.Errorf("batch[%d]: %w", i, err)
		}
	}
	m, err := membersOf(text, reflect.TypeFor[Ledger]())
	if err != nil {
		return Ledger{}, err
	}
	return l, m.complete(len(l.Batch))
}

// complete reports a member that is missing and whose zero value would say something.
func (m members) complete(entries int) error {
	wanted := []string{"sequence", "batch"}
	for i := range entries {
		wanted = append(wanted, fmt.Sprintf("batch[%d].placement", i))
	}
	for _, path := range wanted {
		if !m[path] {
			return fmt.Errorf("%s is missing", path)
		}
	}
	return nil
}

// check says what is wrong with a ledger.
func (l Ledger) check() error {
	switch {
	case l.Term < 1:
		return fmt.Errorf("term: %d is less than 1", l.Term)
	case l.Holder == "":
		return errors.New("holder is empty")
	case l.Sequence < 0:
		return fmt.Errorf("sequence: %d is less than 0", l.Sequence)
	case l.DecidedAt.IsZero():
		return errors.New("decidedAt is empty")
	case len(l.Batch) > MaxBatch:
		return fmt.Errorf("batch has %d entries; it can have %d", len(l.Batch), MaxBatch)
	}
	names, uids := map[types.NamespacedName]int{}, map[types.UID]int{}
	for i, e := range l.Batch {
		if err := e.check(); err != nil {
			return fmt.Errorf("batch[%d]%w", i, err)
		}
		name := types.NamespacedName{Namespace: e.Namespace, Name: e.Name}
		if first, ok := names[name]; ok {
			return fmt.Errorf("batch[%d]: batch[%d] is of device %s, too", i, first, name)
		}
		if first, ok := uids[e.UID]; ok {
			return fmt.Errorf("batch[%d].uid: batch[%d] has %s, too", i, first, e.UID)
		}
		names[name], uids[e.UID] = i, i
	}
	return nil
}

// check says what is wrong with an entry, beginning with the path of the field. What
// the API server would refuse is wrong: nobody could ever settle it.
func (e LedgerEntry) check() error {
	for _, f := range []struct{ name, value string }{
		{"namespace", e.Namespace}, {"name", e.Name}, {"uid", string(e.UID)}, {"resourceVersion", e.ResourceVersion},
	} {
		if f.value == "" {
			return fmt.Errorf(".%s is empty", f.name)
		}
	}
	return cmp.Or(e.Placement.check(), e.Answer.check())
}

func (p *Placement) check() error {
	switch {
	case p == nil:
		return nil
	case p.Units < 1 || p.Units > MaxUnitsPerDevice:
		return fmt.Errorf(".placement.units: %d is not between 1 and %d", p.Units, MaxUnitsPerDevice)
	case p.Since.IsZero():
		return errors.New(".placement.since is empty")
	case p.LostSince != nil && p.LostSince.IsZero():
		return errors.New(".placement.lostSince is empty")
	}
	return cmp.Or(checkLength(".placement.node", p.Node, maxNode), checkLength(".placement.resourceName", p.ResourceName, maxResourceName))
}

func (a *BindAnswer) check() error {
	switch {
	case a == nil:
		return nil
	case (a.Node == "") == (a.Refusal == nil):
		return errors.New(".answer is not either a node or a refusal")
	case a.AnsweredAt.IsZero():
		return errors.New(".answer.answeredAt is empty")
	case a.Refusal == nil:
		return checkLength(".answer.node", a.Node, maxNode)
	case !refusalCode.MatchString(a.Refusal.Code):
		return fmt.Errorf(".answer.refusal.code: %q does not match %s", a.Refusal.Code, refusalCode)
	}
	return checkLength(".answer.refusal.message", a.Refusal.Message, maxMessage)
}

// What the GPUDevice's schema demands of an entry's fields, beside MaxUnitsPerDevice.
const (
	maxNode         = 253
	maxResourceName = 308
	maxMessage      = 1024
)

var refusalCode = regexp.MustCompile(`^GPU[0-9]{4}$`) //nolint:gocritic // as the schema has it

// checkLength counts characters, as the API server does.
func checkLength(path, value string, most int) error {
	switch n := utf8.RuneCountInString(value); {
	case n == 0:
		return fmt.Errorf("%s is empty", path)
	case n > most:
		return fmt.Errorf("%s has %d characters; it can have %d", path, n, most)
	}
	return nil
}
