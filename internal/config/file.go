package config

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/viper"
)

// read reads a file of settings. What it says is taken as it is written: a text is no
// number there, as it is in the environment.
func read(file string) (given map[string]any, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	given = map[string]any{}
	decoder, err := viper.NewCodecRegistry().Decoder("yaml")
	if err == nil {
		err = decoder.Decode(text, given)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	// A refused key is not judged by its type as well.
	if err = errors.Join(single(text), unknown("", given)); err == nil {
		err = typed(given)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return given, nil
}

// single refuses a second document: only the first would count.
func single(text []byte) error {
	began, ended, number := false, false, 0
	for line := range bytes.Lines(text) {
		number++
		word := bytes.TrimRight(line, " \t\r\n")
		marker := string(word) == "---" || bytes.HasPrefix(word, []byte("--- ")) || bytes.HasPrefix(word, []byte("---\t"))
		switch {
		case began && marker, ended && !isBlank(line):
			return fmt.Errorf("line %d begins a second document, which would not count", number)
		case string(word) == "...":
			ended = true
		case marker, !isBlank(line) && line[0] != '%':
			began = true
		}
	}
	return nil
}

// isBlank reports a line without anything but a comment.
func isBlank(line []byte) bool {
	line = bytes.TrimSpace(line)
	return len(line) == 0 || line[0] == '#'
}

// unknown refuses keys below a section that are no settings: what was meant would be
// left out in silence. A section without anything in it is none.
func unknown(section string, given map[string]any) error {
	var names []string
	for _, k := range keys() {
		names = append(names, k.name)
	}
	var wrong []error
	seen := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		full := section + name
		is := func(known string) bool { return strings.EqualFold(known, full) }
		within := func(known string) bool {
			return len(known) > len(full) && known[len(full)] == '.' && is(known[:len(full)])
		}
		inner, isSection := given[name].(map[string]any)
		lower := strings.ToLower(name)
		switch {
		case seen[lower]:
			wrong = append(wrong, fmt.Errorf("key %q is there twice", full))
		case strings.Contains(name, "."), !slices.ContainsFunc(names, is) && !slices.ContainsFunc(names, within):
			wrong = append(wrong, fmt.Errorf("unknown key %q; the keys are %s", full, strings.Join(names, ", ")))
		case slices.ContainsFunc(names, is), given[name] == nil:
		case isSection:
			wrong = append(wrong, unknown(full+".", inner))
		default:
			wrong = append(wrong, fmt.Errorf("%q is a section, not %v", full, given[name]))
		}
		seen[lower] = true
	}
	return errors.Join(wrong...)
}

// typed refuses values that are not of their setting's type.
func typed(given map[string]any) error {
	var s Settings
	decoder, err := mapstructure.NewDecoder(&mapstructure.DecoderConfig{
		Result: &s, ErrorUnused: true, DecodeHook: mapstructure.ComposeDecodeHookFunc(duration, whole),
	})
	if err != nil {
		return err
	}
	return decoder.Decode(given)
}

// whole refuses a fraction, of which only the whole part would count.
func whole(_, to reflect.Type, value any) (any, error) {
	if f, ok := value.(float64); ok && to.Kind() == reflect.Int && float64(int(f)) != f {
		return nil, fmt.Errorf("is %v, not a whole number", f)
	}
	return value, nil
}
