package manifest

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"
)

// TestScalars pins what scalars mean; the same texts are compared with
// sigs.k8s.io/yaml.
func TestScalars(t *testing.T) {
	number := func(s string) any { return json.Number(s) }
	tests := map[string]struct {
		text    string
		want    any
		wantErr string
	}{
		"yes":                     {text: "yes", want: true},
		"y":                       {text: "y", want: true},
		"on":                      {text: "On", want: true},
		"off":                     {text: "off", want: false},
		"quoted yes":              {text: `"yes"`, want: "yes"},
		"tilde":                   {text: "~", want: nil},
		"nothing":                 {text: "", want: nil},
		"quoted nothing":          {text: "''", want: ""},
		"leading zero is octal":   {text: "0102", want: number("66")},
		"no octal":                {text: "08", want: number("8")},
		"new octal":               {text: "0o17", want: number("15")},
		"hexadecimal":             {text: "0x10", want: number("16")},
		"binary":                  {text: "-0b11", want: number("-3")},
		"binary with a late sign": {text: "0b-11", want: number("-3")},
		"grouped":                 {text: "1_000", want: number("1000")},
		"plus":                    {text: "+5", want: number("5")},
		"exponent":                {text: "1e07", want: number("10000000")},
		"PCI id like a number":    {text: "10e7", want: number("100000000")},
		"fraction":                {text: "1.50", want: number("1.5")},
		"bare point":              {text: "5.", want: number("5")},
		"dotted":                  {text: "1.2.3", want: "1.2.3"},
		"base 60 is text":         {text: "1:20", want: "1:20"},
		"date is text":            {text: "2024-01-02", want: "2024-01-02"},
		"time is text":            {text: "2001-12-14t21:59:43.10-05:00", want: "2001-12-14t21:59:43.10-05:00"},
		"largest unsigned":        {text: "18446744073709551615", want: number("18446744073709551615")},
		"huge keeps its digits":   {text: "12345678901234567890123", want: number("12345678901234567890123")},
		"fine keeps its digits":   {text: "3.14159265358979323846", want: number("3.14159265358979323846")},
		"tiny keeps its digits":   {text: "-12345678901234567890123e-50", want: number("-1.2345678901234567890123e-28")},
		"too large is text":       {text: "1e400", want: "1e400"},
		"infinity":                {text: ".inf", wantErr: "no form in JSON"},
		"not a number":            {text: ".NaN", wantErr: "no form in JSON"},
		"tagged text":             {text: "!!str 5", want: "5"},
		"tagged number":           {text: `!!int "5"`, want: number("5")},
		"tagged float":            {text: "!!float 0102", want: number("66")},
		"wrongly tagged":          {text: "!!int x", wantErr: "cannot decode"},
		"base64":                  {text: "!!binary aGk=", want: "hi"},
		"base64 of bytes":         {text: "!!binary //8=", want: "\ufffd\ufffd"},
		"no base64":               {text: "!!binary $", wantErr: "cannot decode"},
		"tag of its own":          {text: "!mine 5", want: "5"},
		"merge sign as a value":   {text: "<<", want: "<<"},
		"emoji":                   {text: "a 🚀", want: "a 🚀"},
		"literal is never null":   {text: "|\n  ~\n", want: "~\n"},
		"escaped character":       {text: `"\U0001F680"`, want: "🚀"},
		"capital words are text":  {text: "yEs", want: "yEs"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			text := "kind: K\nx: " + tc.text + "\n"
			docs, _, err := Parse("f.yaml", []byte(text))
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), "parse f.yaml: line 2: ") || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("Parse() error = %v, want one of line 2 with %q", err, tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, docs[0].Object["x"]); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.text, diff)
			}
			sameAsKubernetes(t, []byte(text), docs[0].Object)
		})
	}
}

func TestKeysReadLikeKubernetes(t *testing.T) {
	for name, key := range map[string]string{
		"boolean": "yes", "octal": "0102", "float": "1.23456789", "exponent": "1e3", "infinity": "-.inf", "date": "2024-01-02", "text": "a b", "quoted": `"5"`, "grouped": "1_0",
	} {
		t.Run(name, func(t *testing.T) {
			text := "kind: K\n" + key + ": x\n"
			docs, _, err := Parse("f.yaml", []byte(text))
			if err != nil {
				t.Fatal(err)
			}
			sameAsKubernetes(t, []byte(text), docs[0].Object)
		})
	}
}

// oddTag matches tags that the scanners of the two libraries treat differently:
// "!" alone, and what is no name.
var oddTag = regexp.MustCompile(`!([^!a-z]|$)`)

// readBoth reads a text with sigs.k8s.io/yaml and as Parse does, and fails when
// they disagree. A text that only one of them takes is no failure here: their
// scanners differ in corners.
func readBoth(t interface{ Fatalf(string, ...any) }, text []byte) {
	data, err := yaml.YAMLToJSON(text)
	if err != nil || oddTag.Match(text) {
		return
	}
	got, _, ok := (&parser{lines: itemLines{}}).single(chunk{text: text, line: 1})
	if !ok || string(data) == "null" {
		return
	}
	sameAsKubernetes(t, text, got)
}

func TestRandomScalarsReadLikeKubernetes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]string{"0123456789", "01_xob-+.eE", "019:-tTzZ. ", "yYnNoOeEsSfF~", ".+-infINFaA", "0123456789abcdefx_+-.:eEyn~ "}).Draw(t, "alphabet")
		text := rapid.StringOfN(rapid.SampledFrom([]rune(alphabet)), 0, 24, -1).Draw(t, "text")
		readBoth(t, []byte("a: "+text+"\n"))
		readBoth(t, []byte(text+": a\n"))
	})
}

func FuzzScalar(f *testing.F) {
	for _, s := range []string{"yes", "0102", "1e07", "1_000", "~", "2024-01-01", "0x10", ".inf", "!!binary aGk=", `"5"`, "!!float 1", "0b1_1", "1e-400"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if utf8.ValidString(s) && !strings.ContainsAny(s, "\n\r\u0085\u2028\u2029#&*") {
			readBoth(t, []byte("a: "+s+"\n"))
		}
	})
}

func TestDecimals(t *testing.T) {
	for name, tc := range map[string]struct {
		a, b string
		want bool
	}{
		"spelling":  {"1e3", "1000.0", true},
		"zero":      {"-0", "0.00e9", true},
		"sign":      {"+5", "5", true},
		"one digit": {"12345678901234567890123", "12345678901234567890124", false},
		"scale":     {"1e999999999999", "1e3", false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sameDecimal(tc.a, tc.b); got != tc.want {
				t.Errorf("sameDecimal(%s, %s) = %t", tc.a, tc.b, got)
			}
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`-?(0|[1-9][0-9]{0,50})(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?`).Draw(t, "number")
		again := decimalOf(text).number()
		if !sameDecimal(text, again.String()) || !json.Valid([]byte(again)) {
			t.Errorf("%s becomes %s", text, again)
		}
	})
}
