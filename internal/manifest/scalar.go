package manifest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// resolve returns what a scalar means to sigs.k8s.io/yaml, which reads YAML 1.1
// the way go.yaml.in/yaml/v2 does: nil, bool, int64, uint64, float64 or string.
// Tag is the explicit one, short ("!!int"), or "". Plain scalars are not quoted.
func resolve(tag, text string, plain bool) (any, error) {
	switch tag {
	case "":
		if !plain {
			return text, nil
		}
		return implicit(text, true), nil
	case "!!str":
		return text, nil
	case "!!binary":
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, fmt.Errorf("cannot decode %q as !!binary", text)
		}
		return string([]rune(string(data))), nil // what is no UTF-8 cannot be JSON
	case "!!bool", "!!int", "!!float", "!!null", "!!timestamp":
		v := implicit(text, tag == "!!timestamp")
		if i, ok := v.(int64); ok && tag == "!!float" {
			v = float64(i)
		}
		if !fits(v, tag, text) {
			return nil, fmt.Errorf("cannot decode %q as %s", text, tag)
		}
		return v, nil
	}
	return text, nil // tags of other kinds of data do not change the text
}

// fits reports whether a value is of the kind that a tag demands.
func fits(v any, tag, text string) bool {
	switch v.(type) {
	case nil:
		return tag == "!!null"
	case bool:
		return tag == "!!bool"
	case int64, uint64:
		return tag == "!!int"
	case float64:
		return tag == "!!float"
	}
	return tag == "!!timestamp" && isTimestamp(text)
}

// implicit resolves a scalar without a tag by its looks.
func implicit(text string, timestamps bool) any {
	switch text {
	case "", "~", "null", "Null", "NULL":
		return nil
	case "y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return true
	case "n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return false
	case ".nan", ".NaN", ".NAN":
		return math.NaN()
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF":
		return math.Inf(1)
	case "-.inf", "-.Inf", "-.INF":
		return math.Inf(-1)
	}
	switch c := text[0]; {
	case c == '.':
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return f
		}
	case c == '+' || c == '-' || '0' <= c && c <= '9':
		if !timestamps || !isTimestamp(text) {
			return number(text)
		}
	}
	return text
}

// number resolves what starts like a number. "_" may group the digits; 0x, 0o,
// 0b and a leading 0 give the base of integers.
func number(text string) any {
	digits := strings.ReplaceAll(text, "_", "")
	if i, err := strconv.ParseInt(digits, 0, 64); err == nil {
		return i
	}
	if u, err := strconv.ParseUint(digits, 0, 64); err == nil {
		return u
	}
	if looksDecimal(digits) {
		if f, err := strconv.ParseFloat(digits, 64); err == nil {
			return f
		}
	}
	if bits, ok := strings.CutPrefix(digits, "0b"); ok { // the library takes a sign there
		if i, err := strconv.ParseInt(bits, 2, 64); err == nil {
			return i
		}
	}
	return text
}

// looksDecimal reports whether s is a decimal number such as -1, .5, 2. or 1e07.
func looksDecimal(s string) bool {
	s = strings.TrimLeft(s[:min(1, len(s))], "+-") + s[min(1, len(s)):]
	whole := leadingDigits(s)
	s = s[whole:]
	fraction := 0
	if rest, ok := strings.CutPrefix(s, "."); ok {
		fraction = leadingDigits(rest)
		s = rest[fraction:]
	}
	if whole == 0 && fraction == 0 {
		return false
	}
	if s == "" {
		return true
	}
	if s[0] != 'e' && s[0] != 'E' {
		return false
	}
	s = s[1:]
	if s != "" && (s[0] == '+' || s[0] == '-') {
		s = s[1:]
	}
	return s != "" && leadingDigits(s) == len(s)
}

func leadingDigits(s string) int { return len(s) - len(strings.TrimLeft(s, "0123456789")) }

// isTimestamp reports whether text is a date or time of YAML 1.1, in the forms
// that go.yaml.in/yaml knows. Timestamps stay the text they are.
func isTimestamp(text string) bool {
	if len(text) < 5 || text[4] != '-' || strings.Trim(text[:4], "0123456789") != "" {
		return false
	}
	for _, layout := range []string{"2006-1-2T15:4:5.999999999Z07:00", "2006-1-2t15:4:5.999999999Z07:00", "2006-1-2 15:4:5.999999999", "2006-1-2"} {
		if _, err := time.Parse(layout, text); err == nil {
			return true
		}
	}
	return false
}

// generic returns the generic form of a resolved scalar that was written as text.
func generic(v any, text string) (any, error) {
	switch t := v.(type) {
	case int64:
		return json.Number(strconv.FormatInt(t, 10)), nil
	case uint64:
		return json.Number(strconv.FormatUint(t, 10)), nil
	case float64:
		short, err := json.Marshal(t)
		if err != nil {
			return nil, fmt.Errorf("%s has no form in JSON and so in Kubernetes", text)
		}
		exact := strings.ReplaceAll(text, "_", "")
		if again, err := strconv.ParseFloat(exact, 64); err == nil && again == t && looksDecimal(exact) && !sameDecimal(string(short), exact) {
			return decimalOf(exact).number(), nil // the float has lost digits
		}
		return json.Number(short), nil
	}
	return v, nil
}
