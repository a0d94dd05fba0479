package diagnose

import (
	"strings"
	"unicode"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Misspelt reports whether somebody may have meant another word: it has other case,
// blanks or dashes, or up to two other letters.
func Misspelt(have, right string) bool {
	if have == right {
		return false
	}
	a, b := plain(have), plain(right)
	return a == b || len(b) >= 8 && distance(a, b) <= 2
}

// Alike reports texts that differ at most in case, blanks and punctuation. KubeVirt and
// kubelet tell such names apart.
func Alike(a, b string) bool { return plain(a) == plain(b) }

// plain returns a text in lower case with its letters and digits alone, and slashes.
func plain(text string) string {
	return strings.ToLower(strings.Map(func(r rune) rune {
		if r == '/' || unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text))
}

// distance counts the letters that differ, are missing or are too many.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		left := row[0]
		row[0] = i + 1
		for j := range len(b) {
			swap := left
			if a[i] != b[j] {
				swap++
			}
			left = row[j+1]
			row[j+1] = min(swap, left+1, row[j]+1)
		}
	}
	return row[len(b)]
}

// meant returns the one of the served names that somebody may have misspelt; none for a
// name that some card or vGPU profile has.
func meant(name gpu.ResourceName, served []string) (string, bool) {
	if len(gpu.DeviceIDs(name)) > 0 || name.IsVGPU() {
		return "", false
	}
	found := ""
	for _, s := range served {
		if !Misspelt(string(name), s) {
			continue
		}
		if found != "" {
			return "", false
		}
		found = s
	}
	return found, found != ""
}

// shown quotes a name with blanks, which are not seen otherwise.
func shown(name gpu.ResourceName) string {
	if strings.ContainsFunc(string(name), unicode.IsSpace) {
		return `"` + string(name) + `"`
	}
	return string(name)
}
