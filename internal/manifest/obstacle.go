package manifest

import (
	"bytes"
	"encoding/json"
	"maps"
	"strings"

	yamlv3 "go.yaml.in/yaml/v3"
)

// clear returns the cuts that take one obstacle on a path out of the way, none
// when there is none: values on the path must be block mappings and lists that
// no alias repeats, with keys of their own. Depth is how many keys of the path
// lead to such values.
func (s *source) clear(path Path, depth int) ([]cut, error) {
	n, at := s.root, entry{}
	for i := 0; ; i++ {
		switch {
		case n.Kind == yamlv3.AliasNode:
			return s.spellOut(at)
		case isContainer(n) && isFlow(n) && len(n.Content) > 0:
			return s.unfold(n, at)
		case n.Anchor != "":
			if cuts, err := s.unshare(n, nil); err != nil || len(cuts) > 0 {
				return cuts, err
			}
		}
		if i == len(path) {
			return nil, nil
		}
		e, ok := child(n, path[i])
		if !ok {
			return s.unmerge(n, path[i])
		}
		if i == depth {
			return nil, nil
		}
		n, at = e.value, e
	}
}

// spellOut replaces an alias by what it stands for.
func (s *source) spellOut(e entry) ([]cut, error) {
	v, err := inOrder(e.value.Alias)
	if err != nil {
		return nil, err
	}
	return s.replace(e, v)
}

// unfold writes a flow mapping or list as a block.
func (s *source) unfold(n *node, e entry) ([]cut, error) {
	l := s.layout(n)
	if e.key == nil { // the root
		from := s.pastProperties(n)
		return []cut{{from, s.flowEnd(n, from), strings.Join(s.flowToBlock(n, 0, l), eolOf(s.text))}}, nil
	}
	in := l.mapping
	if n.Kind == yamlv3.SequenceNode {
		in = l.dash
	}
	from, err := s.valueStart(e)
	return s.replaceText(e, from, "", s.flowToBlock(n, column(e.mapping)+in, l)), err
}

// release returns the cuts that spell out aliases elsewhere which stand for
// something in a value that is to go.
func (s *source) release(gone, n *node) ([]cut, error) {
	if n == nil {
		return nil, nil
	}
	if n.Anchor != "" {
		if cuts, err := s.unshare(n, gone); err != nil || len(cuts) > 0 {
			return cuts, err
		}
	}
	for _, c := range n.Content {
		if cuts, err := s.release(gone, c); err != nil || len(cuts) > 0 {
			return cuts, err
		}
	}
	return nil, nil
}

// unshare spells out the aliases that stand for a value which is to be changed,
// but for those within the node except.
func (s *source) unshare(anchored, except *node) ([]cut, error) {
	var cuts []cut
	v, err := inOrder(anchored)
	if err != nil {
		return nil, err
	}
	flow, err := flowText(v)
	if err != nil {
		return nil, err
	}
	var walk func(n *node)
	walk = func(n *node) {
		for i, c := range n.Content {
			if c.Kind != yamlv3.AliasNode || c.Alias != anchored {
				if c != except {
					walk(c)
				}
				continue
			}
			if e := (entry{n, n.Content[max(0, i-1)], c, i / 2}); n.Kind == yamlv3.MappingNode && !isFlow(n) && i%2 == 1 {
				if more, err := s.replace(e, v); err == nil {
					cuts = append(cuts, more...)
					continue
				}
			}
			from := s.offset(c)
			cuts = append(cuts, cut{from, s.end(c, 0), flow})
		}
	}
	walk(s.root)
	return cuts, nil
}

// unmerge writes out the merge keys of a mapping that give it a key. Of several
// the last wins.
func (s *source) unmerge(n *node, key string) ([]cut, error) {
	if n.Kind != yamlv3.MappingNode || !hasMerge(n) {
		return nil, nil
	}
	all := Object{}
	if err := new(builder).fill(n, all); err != nil || !hasKey(all, key) {
		return nil, err
	}
	var cuts []cut
	written := Object{}
	for i := len(n.Content) - 2; i >= 0; i -= 2 {
		if !isMerge(n.Content[i]) {
			continue
		}
		merged := Object{}
		if err := new(builder).merge(n.Content[i+1], merged); err != nil {
			return nil, err
		}
		maps.DeleteFunc(merged, func(k string, _ any) bool {
			_, own := child(n, k)
			return own || hasKey(written, k)
		})
		maps.Copy(written, merged)
		c, err := s.rewrite(entry{n, n.Content[i], n.Content[i+1], i / 2}, merged)
		if err != nil {
			return nil, err
		}
		cuts = append(cuts, c)
	}
	return cuts, nil
}

// rewrite puts other entries in the place of one.
func (s *source) rewrite(e entry, entries Object) (cut, error) {
	first, last, err := s.entryLines(e)
	if err != nil {
		return cut{}, err
	}
	var lines []string
	if len(entries) > 0 {
		lines, err = s.layout(e.mapping).block(entries, column(e.mapping))
	}
	return s.instead(first, last, lines), err
}

func hasKey(m map[string]any, key string) bool { _, ok := m[key]; return ok }

// inOrder returns the generic form of a node with its keys in their order.
func inOrder(n *node) (any, error) {
	v, err := new(builder).value(n)
	if err != nil {
		return nil, err
	}
	return ordered(n, v), nil
}

func ordered(n *node, v any) any {
	if n.Kind == yamlv3.AliasNode {
		n = n.Alias
	}
	switch t := v.(type) {
	case []any:
		for i := range t {
			t[i] = ordered(n.Content[i], t[i])
		}
	case map[string]any:
		if hasMerge(n) {
			return v
		}
		out := make(Fields, 0, len(t))
		for i := 0; i+1 < len(n.Content); i += 2 {
			name, _ := new(builder).key(n.Content[i])
			out = append(out, Field{name, ordered(n.Content[i+1], t[name])})
		}
		return out
	}
	return v
}

// flowText returns a value in one line: JSON, which YAML takes in most places.
func flowText(v any) (string, error) {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	err := enc.Encode(plain(v))
	return string(bytes.TrimSpace(buf.Bytes())), err
}
