package cluster

import (
	"testing"
	"time"
)

func TestTokenIsReplacedInTime(t *testing.T) {
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for name, tc := range map[string]struct {
		token     string
		lasts, in time.Duration
		want      bool
	}{
		"none":            {lasts: time.Hour, want: true},
		"new":             {token: "t", lasts: time.Hour, in: time.Minute},
		"a fifth left":    {token: "t", lasts: time.Hour, in: 49 * time.Minute, want: true},
		"lasts for years": {token: "t", lasts: 10000 * time.Hour, in: 23 * time.Hour},
		"a day old":       {token: "t", lasts: 10000 * time.Hour, in: 25 * time.Hour, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			got := issued{token: tc.token, since: since, ends: since.Add(tc.lasts)}.stale(since.Add(tc.in))
			if got != tc.want {
				t.Errorf("got %t", got)
			}
		})
	}
}

func TestRewrite(t *testing.T) {
	paths := localPaths{{"/etc/all", "/L/all"}, {"/etc", "/L/etc"}}
	for name, tc := range map[string]struct{ text, want string }{
		"alone":              {"/etc", "/L/etc"},
		"below":              {"/etc/x", "/L/etc/x"},
		"the longer one":     {"/etc/all/x", "/L/all/x"},
		"value of a flag":    {"--file=/etc/x", "--file=/L/etc/x"},
		"list":               {"/etc/a:/etc/all", "/L/etc/a:/L/all"},
		"another word":       {"/etcetera", "/etcetera"},
		"in another path":    {"/opt/etc/x", "/opt/etc/x"},
		"in a URL":           {"https://host/etc/x", "https://host/etc/x"},
		"nothing of a mount": {"--interval=15s", "--interval=15s"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := paths.rewrite(tc.text); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

func TestRepositoryOf(t *testing.T) {
	for image, want := range map[string]string{
		"ghcr.io/gpuctl/gpuctl:v1":          "ghcr.io/gpuctl/gpuctl",
		"host:5000/a/b":                     "host:5000/a/b",
		"host:5000/a/b:v1@sha256:abc":       "host:5000/a/b",
		"ghcr.io/gpuctl/gpuctl@sha256:0123": "ghcr.io/gpuctl/gpuctl",
	} {
		if got := repositoryOf(image); got != want {
			t.Errorf("%s: got %q, want %q", image, got, want)
		}
	}
}
