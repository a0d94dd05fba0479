package cluster

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// pool has objects that are alike share what they hold: of thousands of nodes, and tens
// of thousands of pods, few have something of their own. It is safe for concurrent use,
// and what it returns is not to be changed.
type pool struct {
	mu     sync.Mutex
	texts  map[string]any // each itself, as it is in an object
	values map[[sha256.Size]byte]any
	none   metav1.ObjectMeta // of heldPods
}

// poolSize is how many different things a pool knows before it begins anew.
const poolSize = 16384

func (p *pool) text(s string) string { return p.boxed(s).(string) }

// boxed is text for what is kept as any: that alone takes 16 bytes.
func (p *pool) boxed(s string) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.texts[s]; ok {
		return known
	}
	if p.texts == nil || len(p.texts) == poolSize {
		p.texts = map[string]any{}
	}
	p.texts[s] = s
	return p.texts[s]
}

// value returns the one value of all that have the same content.
func (p *pool) value(content []byte, v any) any {
	key := sha256.Sum256(content)
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.values[key]; ok {
		return known
	}
	if p.values == nil || len(p.values) == poolSize {
		p.values = map[[sha256.Size]byte]any{}
	}
	p.values[key] = v
	return v
}

// find returns the value of a content; nil where it is not known.
func (p *pool) find(content []byte) any {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[sha256.Sum256(content)]
}

// share returns the one map of all that say the same; nil for an empty one.
func share[M ~map[K]int64, K ~string](p *pool, m M) M {
	if len(m) == 0 {
		return nil
	}
	content := []byte(reflect.TypeFor[M]().String())
	for _, name := range slices.Sorted(maps.Keys(m)) {
		content = binary.LittleEndian.AppendUint64(appendText(content, string(name)), uint64(m[name]))
	}
	return p.value(content, m).(M)
}

// alike returns a value of an object as decoded from JSON, all parts of which are shared.
func (p *pool) alike(v any) any {
	switch t := v.(type) {
	case string:
		return p.boxed(t)
	case map[string]any:
		return p.value(appendValue(nil, t), p.fields(t, p.alike))
	case []any:
		out := make([]any, len(t))
		for i, item := range t {
			out[i] = p.alike(item)
		}
		return p.value(appendValue(nil, t), out)
	}
	return v
}

// parts shares the parts of an object that is no other's yet: its status, and those of its
// metadata and spec.
func (p *pool) parts(obj map[string]any) {
	for name, part := range obj {
		switch m, ok := part.(map[string]any); {
		case ok && name != "status":
			obj[name] = p.fields(m, p.alike)
		default:
			obj[name] = p.alike(part)
		}
	}
}

// fields returns a map that has no more room than it needs, with its values as of says.
func (p *pool) fields(m map[string]any, of func(any) any) map[string]any {
	out := make(map[string]any, len(m))
	for key, v := range m {
		out[p.text(key)] = of(v)
	}
	return out
}

// appendValue appends a value in a form in which no two are the same.
func appendValue(to []byte, v any) []byte {
	switch t := v.(type) {
	case string:
		return appendText(append(to, 's'), t)
	case map[string]any:
		to = binary.AppendUvarint(append(to, 'm'), uint64(len(t)))
		for _, key := range slices.Sorted(maps.Keys(t)) {
			to = appendValue(appendText(to, key), t[key])
		}
		return to
	case []any:
		to = binary.AppendUvarint(append(to, 'l'), uint64(len(t)))
		for _, item := range t {
			to = appendValue(to, item)
		}
		return to
	}
	return appendText(append(to, 'o'), fmt.Sprintf("%T %v", v, v))
}

func appendText(to []byte, s string) []byte {
	return append(binary.AppendUvarint(to, uint64(len(s))), s...)
}
