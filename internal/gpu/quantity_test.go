package gpu

import (
	"strings"
	"testing"
)

func TestEndless(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "4": false, "100m": false, "64Gi": false, "1.5": false, "1e3": false, "-1E+12": false, "1e999": false, "9223372036854775807": false,
		"1e1000": true, "1e100000000": true, "1e-100000000": true, "0e2147483647": true, "+1.5E+00001": true, "1e+-1000": true,
		strings.Repeat("1", 64): false, strings.Repeat("1", 65): true, strings.Repeat("1", 65) + "Gi": true, strings.Repeat("1", 65) + "e1": true,
		"e1000": false, "1e1000 or so": false, "1e": false, "192.168.0.1/24": false, strings.Repeat("1", 65) + " is a serial": false, "11e4a0b2-1c1d": false,
	} {
		if got := Endless(text); got != want {
			t.Errorf("%q is endless: %t", text, got)
		}
	}
}
