package gpu

import (
	"regexp"
	"testing"

	"pgregory.net/rapid"
)

// TestCheckFollowsKubernetes compares the byte loops with the regular expressions
// of k8s.io/apimachinery/pkg/util/validation.
func TestCheckFollowsKubernetes(t *testing.T) {
	domain := regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$`)
	short := regexp.MustCompile(`^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`)
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[-a-cA-C0-1_. /é]{0,8}`).Draw(t, "text")
		if got, want := validDomain(text), domain.MatchString(text); got != want {
			t.Errorf("validDomain(%q) = %v", text, got)
		}
		if got, want := validShort(text), short.MatchString(text); got != want {
			t.Errorf("validShort(%q) = %v", text, got)
		}
	})
}
