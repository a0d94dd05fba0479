package cluster

import (
	"encoding/binary"
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
)

// pool has objects that are alike share what they hold: of tens of thousands of pods few
// request something of their own. It is safe for concurrent use, and what it returns is
// not to be changed.
type pool struct {
	mu    sync.Mutex
	texts map[string]string
	lists map[string]corev1.ResourceList
}

// poolSize is how many different things a pool knows before it begins anew.
const poolSize = 16384

func (p *pool) text(s string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.texts[s]; ok {
		return known
	}
	if p.texts == nil || len(p.texts) == poolSize {
		p.texts = map[string]string{}
	}
	p.texts[s] = s
	return s
}

// list returns the amounts of a list as [valueOf] has them.
func (p *pool) list(list corev1.ResourceList) corev1.ResourceList {
	if len(list) == 0 {
		return nil
	}
	var key []byte
	for _, name := range slices.Sorted(maps.Keys(list)) {
		key = append(append(key, name...), 0)
		key = binary.LittleEndian.AppendUint64(key, uint64(valueOf(name, list[name])))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if known, ok := p.lists[string(key)]; ok {
		return known
	}
	if p.lists == nil || len(p.lists) == poolSize {
		p.lists = map[string]corev1.ResourceList{}
	}
	p.lists[string(key)] = list
	return list
}
