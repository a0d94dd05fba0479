package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
)

// decodeStrictly reads one JSON value that has one reading only: nothing is after it,
// nothing in it is null, and its fields are known, by their exact names, and there once.
// It returns the fields that are there.
func decodeStrictly(text string, out any) (members, error) {
	err := decode(text, out)
	var mistyped *json.UnmarshalTypeError
	if err != nil && !errors.As(err, &mistyped) {
		return nil, err
	}
	m, wrong := membersOf(text, reflect.TypeOf(out).Elem())
	if wrong != nil {
		return nil, wrong
	}
	return m, err
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

// membersOf returns the members of a value that decode took for the type, or would have
// but for one that is of another kind, which the error names.
func membersOf(text string, t reflect.Type) (members, error) {
	m := members{}
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	return m, m.add(d, "", t)
}

// add reads one value. It refuses members that are there twice, in another spelling or of
// another kind than the type's, and null but for the placement of a ledger's entry.
func (m members) add(d *json.Decoder, path string, t reflect.Type) error {
	token, err := d.Token()
	if err != nil {
		return err
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if wrong := mistake(token, t); wrong != "" {
		return errors.New(strings.TrimPrefix(path+": "+wrong, ": "))
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

// mistake says in which way a value, of which token is the first, is none for the type.
// Types that read themselves have none, and null is for others to judge.
func mistake(token json.Token, t reflect.Type) string {
	if token == nil || reflect.PointerTo(t).Implements(reflect.TypeFor[json.Unmarshaler]()) {
		return ""
	}
	is, want := kindOf(token), "a whole number" // all that our types have beside these
	switch t.Kind() {
	case reflect.String:
		want = "a string"
	case reflect.Bool:
		want = "true or false"
	case reflect.Slice:
		want = "a list"
	case reflect.Struct:
		want = "an object"
	default:
		number, _ := token.(json.Number)
		switch _, err := strconv.ParseInt(number.String(), 10, t.Bits()); {
		case err == nil:
			return ""
		case errors.Is(err, strconv.ErrRange):
			return is + " is out of range"
		}
	}
	if is == want {
		return ""
	}
	return is + " where " + want + " is expected"
}

// kindOf names the value that begins with the token.
func kindOf(token json.Token) string {
	switch v := token.(type) {
	case bool:
		return "true or false"
	case json.Number:
		return "the number " + v.String()
	case json.Delim:
		if v == '[' {
			return "a list"
		}
		return "an object"
	default:
		return "a string"
	}
}
