package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
)

// decodeStrictly reads one JSON value that has one reading only: nothing is after it,
// nothing in it is null, and its fields are known, by their exact names, and there once.
func decodeStrictly(text string, out any) error {
	if err := decode(text, out); err != nil {
		return err
	}
	_, err := membersOf(text, reflect.TypeOf(out).Elem())
	return err
}

// decode reads one JSON value and nothing after it, without fields that are not known.
// It does not take null, which would leave out as it is. What encoding/json lets pass in
// names and inside, membersOf refuses.
func decode(text string, out any) error {
	if strings.TrimSpace(text) == "null" {
		return errors.New("it is null")
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(out); err != nil {
		if errors.Is(err, io.EOF) {
			return errors.New("it is empty")
		}
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("something follows behind its end")
	}
	return nil
}

// members has the path of each member of a JSON value: "batch[0].uid".
type members map[string]bool

// membersOf returns the members of a value that decode took for the type.
func membersOf(text string, t reflect.Type) (members, error) {
	m := members{}
	return m, m.add(json.NewDecoder(strings.NewReader(text)), "", t)
}

// add reads one value. It refuses members that are there twice or in another spelling
// than the type's, and null but for the placement of a ledger's entry.
func (m members) add(d *json.Decoder, path string, t reflect.Type) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch token {
	case nil:
		if !strings.HasSuffix(path, "].placement") {
			return fmt.Errorf("%s is null", path)
		}
	case json.Delim('['):
		for i := 0; d.More(); i++ {
			if err := m.add(d, fmt.Sprintf("%s[%d]", path, i), t.Elem()); err != nil {
				return err
			}
		}
		_, err = d.Token()
	case json.Delim('{'):
		for d.More() {
			if err := m.addMember(d, path, t); err != nil {
				return err
			}
		}
		_, err = d.Token()
	}
	return err
}

func (m members) addMember(d *json.Decoder, path string, t reflect.Type) error {
	key, err := d.Token()
	if err != nil {
		return err
	}
	path = strings.TrimPrefix(fmt.Sprintf("%s.%s", path, key), ".")
	for field := range t.Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case !strings.EqualFold(name, fmt.Sprint(key)):
		case name != key:
			return fmt.Errorf("%s: the field is written %q", path, name)
		case m[path]:
			return fmt.Errorf("%s is there twice", path)
		default:
			m[path] = true
			return m.add(d, path, field.Type)
		}
	}
	return fmt.Errorf("%s is no field", path)
}
