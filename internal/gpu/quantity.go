package gpu

import "strings"

// How long the text of a quantity may be, and how many digits its exponent may have.
// What Kubernetes writes has fewer than 30 characters.
const (
	MaxQuantity = 64
	MaxExponent = 3
)

// Endless reports the text of a quantity that nobody means, and that nobody can reckon
// with: resource.ParseQuantity of "1e-100000000", and Cmp or Add of "1e100000000", take
// minutes and as much memory as the number has digits. The API server looks at no
// quantity in a custom resource. A text that is no number is not endless.
func Endless(text string) bool {
	rest := strings.TrimLeft(text, "+-.0123456789")
	number := len(text) - len(rest)
	if number == 0 {
		return false
	}
	if rest == "" || rest[0] != 'e' && rest[0] != 'E' {
		return number > MaxQuantity && len(rest) <= len("Ki")
	}
	exponent := strings.TrimLeft(rest[1:], "+-")
	return strings.Trim(exponent, "0123456789") == "" && (len(exponent) > MaxExponent || number > MaxQuantity)
}
