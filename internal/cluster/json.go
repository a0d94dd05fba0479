package cluster

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// place is where in an object of Kubernetes a value is.
type place int

const (
	elsewhere place = iota
	top
	inMetadata
	inStatus
)

// drops reports a part of objects that gpuctl never looks at and that makes up much
// of them: it is not even decoded.
func (p place) drops(key string) bool {
	return p == inMetadata && key == "managedFields" || p == inStatus && key == "images"
}

// of returns the place of the value of a key.
func (p place) of(key string) place {
	switch {
	case p == top && key == "metadata":
		return inMetadata
	case p == top && key == "status":
		return inStatus
	}
	return elsewhere
}

// decoder reads JSON of an API server into what the dynamic client makes of it,
// several times faster: strings share the memory of the text.
type decoder struct {
	text string
	at   int
}

func (d *decoder) errorf(want string) error {
	return fmt.Errorf("read JSON at byte %d: want %s", d.at, want)
}

// space skips white space and returns the byte behind it, 0 at the end.
func (d *decoder) space() byte {
	for d.at < len(d.text) {
		switch c := d.text[d.at]; c {
		case ' ', '\t', '\n', '\r':
			d.at++
		default:
			return c
		}
	}
	return 0
}

// take skips white space and one byte that must follow.
func (d *decoder) take(c byte) error {
	if d.space() != c {
		return d.errorf(strconv.QuoteRune(rune(c)))
	}
	d.at++
	return nil
}

// value reads any value.
func (d *decoder) value(at place) (any, error) {
	switch c := d.space(); c {
	case '{':
		return d.object(at)
	case '[':
		return d.list()
	case '"':
		return d.str()
	case 't':
		return true, d.word("true")
	case 'f':
		return false, d.word("false")
	case 'n':
		return nil, d.word("null")
	default:
		return d.number()
	}
}

func (d *decoder) word(w string) error {
	if !strings.HasPrefix(d.text[d.at:], w) {
		return d.errorf(w)
	}
	d.at += len(w)
	return nil
}

func (d *decoder) object(at place) (map[string]any, error) {
	out := map[string]any{}
	err := d.fields(func(key string) error {
		if at.drops(key) {
			return d.skip()
		}
		v, err := d.value(at.of(key))
		out[key] = v
		return err
	})
	return out, err
}

// fields calls f for each key of an object, where its value begins.
func (d *decoder) fields(f func(key string) error) error {
	if err := d.take('{'); err != nil {
		return err
	}
	if d.space() == '}' {
		d.at++
		return nil
	}
	for {
		if d.space() != '"' {
			return d.errorf("a key")
		}
		key, err := d.str()
		if err != nil {
			return err
		}
		if err := d.take(':'); err != nil {
			return err
		}
		if err := f(key); err != nil {
			return err
		}
		if d.space() != ',' {
			return d.take('}')
		}
		d.at++
	}
}

func (d *decoder) list() ([]any, error) {
	out := []any{}
	err := d.items(func() error {
		v, err := d.value(elsewhere)
		out = append(out, v)
		return err
	})
	return out, err
}

// items calls f where each value of a list begins.
func (d *decoder) items(f func() error) error {
	if err := d.take('['); err != nil {
		return err
	}
	if d.space() == ']' {
		d.at++
		return nil
	}
	for {
		if err := f(); err != nil {
			return err
		}
		if d.space() != ',' {
			return d.take(']')
		}
		d.at++
	}
}

// str reads a string, whose opening quote is at hand.
func (d *decoder) str() (string, error) {
	start := d.at
	if err := d.skipString(); err != nil {
		return "", err
	}
	inner := d.text[start+1 : d.at-1]
	if strings.IndexByte(inner, '\\') < 0 {
		return inner, nil
	}
	var out string
	err := json.Unmarshal([]byte(d.text[start:d.at]), &out)
	return out, err
}

func (d *decoder) skipString() error {
	for at := d.at + 1; ; at++ {
		i := strings.IndexByte(d.text[at:], '"')
		if i < 0 {
			return d.errorf("the end of a string")
		}
		at += i
		escapes := 0
		for d.text[at-1-escapes] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			d.at = at + 1
			return nil
		}
	}
}

// number reads a number: an int64 where it is one, as the dynamic client does.
func (d *decoder) number() (any, error) {
	start := d.at
	for d.at < len(d.text) && strings.IndexByte("+-.0123456789eE", d.text[d.at]) >= 0 {
		d.at++
	}
	text := d.text[start:d.at]
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		d.at = start
		return nil, d.errorf("a value")
	}
	return f, nil
}

// skip passes over a value.
func (d *decoder) skip() error {
	for depth := 0; ; {
		switch c := d.space(); c {
		case 0:
			return d.errorf("a value")
		case '"':
			if err := d.skipString(); err != nil {
				return err
			}
		case '{', '[':
			depth++
			d.at++
			continue
		case '}', ']':
			depth--
			d.at++
		case ',', ':':
			d.at++
			continue
		default:
			for d.at < len(d.text) && strings.IndexByte(",]} \t\r\n", d.text[d.at]) < 0 {
				d.at++
			}
		}
		if depth <= 0 {
			return nil
		}
	}
}
