package manifest

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// canonical returns an object as YAML with sorted keys.
func canonical(obj Object) ([]byte, error) {
	if len(obj) == 0 {
		return []byte("{}\n"), nil
	}
	lines, err := canonicalLayout().block(obj, 0)
	if err != nil {
		return nil, err
	}
	return []byte(strings.Join(lines, "\n") + "\n"), nil
}

// block returns the lines of a mapping or list that is not empty, at a column.
func (l layout) block(v any, column int) ([]string, error) {
	var lines []string
	if list, ok := v.([]any); ok {
		for _, item := range list {
			more, err := l.listItem(item, column)
			if err != nil {
				return nil, err
			}
			lines = append(lines, more...)
		}
		return lines, nil
	}
	for _, f := range fieldsOf(v) {
		more, err := l.entry(f.Key, f.Value, column)
		if err != nil {
			return nil, err
		}
		lines = append(lines, more...)
	}
	return lines, nil
}

// entry returns the lines of a key and its value at a column.
func (l layout) entry(key string, v any, column int) ([]string, error) {
	start := spaces(column) + quoted(key) + ":"
	if !isBlock(v) {
		return l.scalar(start, v, column+l.mapping)
	}
	lines, err := l.block(v, column+l.below(v))
	return append([]string{start}, lines...), err
}

// below returns how far a block stands in from its key.
func (l layout) below(v any) int {
	if _, ok := v.([]any); ok {
		return l.dash
	}
	return l.mapping
}

// listItem returns the lines of an item of a list whose dashes stand at a column.
func (l layout) listItem(v any, column int) ([]string, error) {
	in := column + l.item
	start := spaces(column) + "-"
	if !isBlock(v) {
		return l.scalar(start+spaces(l.item-2), v, in)
	}
	lines, err := l.block(v, in)
	if err != nil {
		return nil, err
	}
	lines[0] = start + lines[0][len(start):]
	return lines, nil
}

// scalar returns the lines of what is no block: one, or a literal block's.
func (l layout) scalar(start string, v any, column int) ([]string, error) {
	if s, ok := v.(string); ok {
		if header, lines, ok := literal(s); ok {
			out := []string{start + " " + header}
			for _, line := range lines {
				if line != "" {
					line = spaces(column) + line
				}
				out = append(out, line)
			}
			return out, nil
		}
	}
	text, err := inline(v)
	return []string{start + " " + text}, err
}

// inline returns a scalar or an empty mapping or list.
func inline(v any) (string, error) {
	switch t := v.(type) {
	case nil:
		return "null", nil
	case string:
		return quoted(t), nil
	case bool:
		return strconv.FormatBool(t), nil
	case json.Number:
		return t.String(), nil
	case []any:
		return "[]", nil
	case map[string]any, Fields:
		return "{}", nil
	case int, int32, int64, uint64, float64:
		text, err := json.Marshal(t)
		return string(text), err
	}
	return "", fmt.Errorf("write a value of type %T: it has no generic form", v)
}

// isBlock reports whether a value is written as a block: a mapping or list that
// is not empty.
func isBlock(v any) bool {
	list, _ := v.([]any)
	return len(list) > 0 || len(fieldsOf(v)) > 0
}

// fieldsOf returns the entries of a mapping in the order in which to write them.
func fieldsOf(v any) Fields {
	if f, ok := v.(Fields); ok {
		return f
	}
	m, _ := v.(map[string]any)
	out := make(Fields, 0, len(m))
	for _, key := range slices.Sorted(maps.Keys(m)) {
		out = append(out, Field{key, m[key]})
	}
	return out
}

func spaces(n int) string { return strings.Repeat(" ", max(0, n)) }
