package cli

import "testing"

func TestMemoryLimit(t *testing.T) {
	for name, tc := range map[string]struct {
		own, pod string
		want     int64
		wantErr  bool
	}{
		"nobody says any":           {want: -1},
		"the pod's":                 {pod: "536870912", want: 429496728},
		"Go's own counts more":      {own: "1GiB", pod: "536870912", want: -1},
		"a quantity of Kubernetes'": {pod: "512Mi", wantErr: true},
		"none":                      {pod: "0", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := memoryLimit(tc.own, tc.pod)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got error %v, want one: %t", err, tc.wantErr)
			}
			if got != tc.want {
				t.Errorf("got %d, want %d", got, tc.want)
			}
		})
	}
}
