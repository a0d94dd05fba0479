package manifest

import (
	"encoding/json"
	"strconv"
	"strings"
)

// decimal is a decimal number of any size: 0.digits × 10^exp. Digits have no
// zeros at either end; zero has none at all.
type decimal struct {
	negative bool
	digits   string
	exp      int
}

// maxExponent bounds exponents, so that counting with them cannot overflow.
const maxExponent = 1 << 30

// decimalOf reads a decimal number of JSON or YAML.
func decimalOf(text string) decimal {
	var d decimal
	switch text[0] {
	case '-':
		d.negative = true
		text = text[1:]
	case '+':
		text = text[1:]
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		d.exp, _ = strconv.Atoi(text[i+1:])
		d.exp = max(-maxExponent, min(d.exp, maxExponent))
		text = text[:i]
	}
	whole, fraction, _ := strings.Cut(text, ".")
	d.digits = whole + fraction
	d.exp += len(whole)
	short := strings.TrimLeft(d.digits, "0")
	d.exp -= len(d.digits) - len(short)
	d.digits = strings.TrimRight(short, "0")
	if d.digits == "" {
		return decimal{}
	}
	return d
}

// sameDecimal reports whether two numbers have the same value, however they are
// written.
func sameDecimal(a, b string) bool { return decimalOf(a) == decimalOf(b) }

// number returns the decimal as JSON, whole where it is and no longer than 40
// digits.
func (d decimal) number() json.Number {
	var out string
	switch n := len(d.digits); {
	case n == 0:
		out = "0"
	case n <= d.exp && d.exp <= 40:
		out = d.digits + strings.Repeat("0", d.exp-n)
	case 0 < d.exp && d.exp < n:
		out = d.digits[:d.exp] + "." + d.digits[d.exp:]
	case -10 < d.exp && d.exp <= 0:
		out = "0." + strings.Repeat("0", -d.exp) + d.digits
	default:
		out = strings.TrimSuffix(d.digits[:1]+"."+d.digits[1:], ".") + "e" + strconv.Itoa(d.exp-1)
	}
	if d.negative {
		out = "-" + out
	}
	return json.Number(out)
}
