package serve

import (
	"context"
	"crypto/sha256"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
)

// full returns a lane in which nobody has room.
func full() lane {
	l := make(lane, 1)
	l <- struct{}{}
	return l
}

// These get their answer without anybody being asked; test/e2e has those that are.
func TestGuardAsksNobody(t *testing.T) {
	tests := map[string]struct {
		method, token string
		want          int
	}{
		"a write":                {http.MethodPost, "known", http.StatusMethodNotAllowed},
		"no token":               {http.MethodGet, "", http.StatusUnauthorized},
		"an absurdly long token": {http.MethodGet, strings.Repeat("x", longestToken+1), http.StatusUnauthorized},
		"one stranger too many":  {http.MethodGet, strings.Repeat("x", longestToken), http.StatusServiceUnavailable},
		"a known verdict":        {http.MethodGet, "known", http.StatusForbidden},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			g := guardOf(nil, logr.Discard(), nil)
			g.strangers = full()
			g.verdicts.Set(sha256.Sum256([]byte("known\x00GET\x00/metrics")), http.StatusForbidden, time.Minute)
			r := httptest.NewRequestWithContext(t.Context(), tc.method, "/metrics", http.NoBody)
			r.Header.Set("Authorization", "Bearer "+tc.token)
			w := httptest.NewRecorder()
			g.ServeHTTP(w, r)
			if w.Code != tc.want {
				t.Errorf("answer %d, want %d: %s", w.Code, tc.want, w.Body)
			}
		})
	}
}

// Who was let in is not held up by strangers, however many they are.
func TestGuardHasALaneForThoseItKnows(t *testing.T) {
	g := guardOf(nil, logr.Discard(), nil)
	g.strangers = full()
	token := sha256.Sum256([]byte("known"))
	if _, err := g.enter(t.Context(), token); err == nil {
		t.Fatal("a stranger finds room in a full lane")
	}
	g.trusted.Set(token, true, trustLasts)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	leave, err := g.enter(ctx, token)
	if err != nil || len(g.known) != 1 {
		t.Fatalf("%d are in the lane: %v", len(g.known), err)
	}
	leave()
	if len(g.known) != 0 {
		t.Error("who is done stays in the lane")
	}
}
