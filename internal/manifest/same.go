package manifest

import (
	"encoding/json"
	"fmt"
)

// same reports whether two generic values are equal, numbers by their value: Go's
// number types may be among them.
func same(a, b any) bool {
	switch x := a.(type) {
	case map[string]any:
		y, ok := b.(map[string]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for k, v := range x {
			if w, there := y[k]; !there || !same(v, w) {
				return false
			}
		}
		return true
	case []any:
		y, ok := b.([]any)
		if !ok || len(x) != len(y) {
			return false
		}
		for i := range x {
			if !same(x[i], y[i]) {
				return false
			}
		}
		return true
	}
	x, isNumber := numberText(a)
	y, alsoNumber := numberText(b)
	if isNumber && alsoNumber {
		return sameDecimal(x, y)
	}
	switch a.(type) {
	case nil, bool, string:
		return a == b
	}
	return false
}

// numberText returns the digits of a number.
func numberText(v any) (string, bool) {
	switch t := v.(type) {
	case json.Number:
		return t.String(), true
	case float64, float32:
		text, err := json.Marshal(t)
		return string(text), err == nil
	case int, int8, int16, int32, int64, uint, uint8, uint16, uint32, uint64:
		return fmt.Sprint(t), true
	}
	return "", false
}
