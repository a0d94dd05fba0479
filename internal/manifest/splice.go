package manifest

import (
	"slices"

	yamlv3 "go.yaml.in/yaml/v3"
)

// maxClears bounds how often an edit takes something out of its way: each time
// the text is read anew.
const maxClears = 100

// splice returns the text with the edits made in it. The lines that they do not
// concern stay as they are. The result is to be checked: where a text is written
// in an unforeseen way it may be wrong.
func splice(text []byte, edits []Edit) ([]byte, error) {
	for _, e := range edits {
		var err error
		if text, err = spliceOne(text, e); err != nil {
			return nil, err
		}
	}
	return text, nil
}

// spliceOne makes one edit, when nothing is in its way any more.
func spliceOne(text []byte, e Edit) ([]byte, error) {
	path, depth := e.reach()
	for range maxClears {
		s, err := newSource(text)
		if err != nil {
			return nil, err
		}
		cuts, err := s.clear(path, depth)
		if gone := e.replaces(s); len(cuts) == 0 && err == nil {
			cuts, err = s.release(gone, gone)
		}
		done := len(cuts) == 0
		if done && err == nil {
			cuts, err = e.splice(s)
		}
		if err != nil {
			return nil, err
		}
		if text, err = s.apply(cuts); err != nil || done {
			return text, err
		}
	}
	return nil, errNoSplice
}

func (e Append) reach() (path Path, depth int)     { return e.Path, len(e.Path) }
func (e Set) reach() (path Path, depth int)        { return e.Path, len(e.Path) - 1 }
func (e Delete) reach() (path Path, depth int)     { return e.Path, len(e.Path) - 1 }
func (e RemoveItem) reach() (path Path, depth int) { return e.Path, len(e.Path) }

func (e Append) replaces(*source) *node   { return nil }
func (e Set) replaces(s *source) *node    { return s.at(e.Path) }
func (e Delete) replaces(s *source) *node { return s.at(e.Path) }
func (e RemoveItem) replaces(s *source) *node {
	if list := s.at(e.Path); list != nil && list.Kind == yamlv3.SequenceNode && e.Index < len(list.Content) {
		return list.Content[e.Index]
	}
	return nil
}

func (e Append) splice(s *source) ([]cut, error) {
	last, rest := s.find(e.Path)
	if list := last.value; len(rest) == 0 && list.Kind == yamlv3.SequenceNode && len(list.Content) > 0 {
		return s.appendItem(last, e.Value)
	}
	return s.put(last, rest, []any{e.Value})
}

func (e Set) splice(s *source) ([]cut, error) {
	last, rest := s.find(e.Path)
	return s.put(last, rest, e.Value)
}

func (e Delete) splice(s *source) ([]cut, error) {
	last, rest := s.find(e.Path)
	if len(rest) > 0 {
		return nil, nil
	}
	first, end, err := s.entryLines(last)
	if err != nil {
		return nil, err
	}
	if content := last.mapping.Content; len(content) > 2 {
		return []cut{s.without(first, end, content[:2*last.index], column(last.mapping))}, nil
	}
	owner, _ := s.find(e.Path[:len(e.Path)-1])
	if owner.key == nil {
		return nil, errNoSplice
	}
	return s.emptied(owner, " {}", first, end)
}

func (e RemoveItem) splice(s *source) ([]cut, error) {
	last, rest := s.find(e.Path)
	list := last.value
	if len(rest) > 0 || list.Kind != yamlv3.SequenceNode || e.Index >= len(list.Content) {
		return nil, errNoSplice
	}
	dash := s.dashOffset(list.Content[e.Index])
	if dash < 0 {
		return nil, errNoSplice
	}
	first := s.lineAt(dash)
	column := dash - s.lines[first]
	end := s.pastComments(s.lineAt(s.end(list.Content[e.Index], column)), column)
	if len(list.Content) > 1 {
		return []cut{s.without(first, end, list.Content[:e.Index], column)}, nil
	}
	return s.emptied(last, " []", first, end)
}

// find follows a path as far as the text has it. It returns the last entry on it,
// the root as an entry without a key, and the keys that are missing.
func (s *source) find(path Path) (last entry, rest Path) {
	last = entry{value: s.root}
	for i, key := range path {
		next, ok := child(last.value, key)
		if !ok {
			return last, path[i:]
		}
		last = next
	}
	return last, nil
}

// at returns the value at a path, nil when there is none.
func (s *source) at(path Path) *node {
	last, rest := s.find(path)
	if len(rest) > 0 {
		return nil
	}
	return last.value
}

// put writes a value below an entry, with the missing keys on the way to it.
func (s *source) put(at entry, missing Path, v any) ([]cut, error) {
	if m := at.value; len(missing) > 0 && m.Kind == yamlv3.MappingNode && len(m.Content) > 0 {
		return s.addKey(at, missing[0], nest(missing[1:], v))
	}
	if at.key == nil {
		return nil, errNoSplice
	}
	return s.replace(at, nest(missing, v))
}

// nest wraps a value in a mapping for each key.
func nest(keys Path, v any) any {
	for _, key := range slices.Backward(keys) {
		v = Fields{{key, v}}
	}
	return v
}
