package process

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	status := []byte("Name:\tgpuctl\nVmHWM:\t   40960 kB\nVmRSS:\t   20480 kB\nThreads:\t9\n")
	for name, tc := range map[string]struct {
		stat    string
		want    Usage
		wantErr bool
	}{
		"a plain name":         {stat: "7 (gpuctl) S 1 7 7 0 -1 4194560 9 0 0 0 150 25 0 0 20 0 9", want: Usage{20480, 40960, 1750 * time.Millisecond}},
		"a name with brackets": {stat: "7 (a) b) S 1 7 7 0 -1 4194560 9 0 0 0 150 25 0 0 20 0 9", want: Usage{20480, 40960, 1750 * time.Millisecond}},
		"a file cut short":     {stat: "7 (gpuctl) S 1 7", wantErr: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := parse([]byte(tc.stat), status)
			if (err != nil) != tc.wantErr {
				t.Fatalf("got error %v, want one: %t", err, tc.wantErr)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" && !tc.wantErr {
				t.Errorf("usage differs (-want +got):\n%s", diff)
			}
		})
	}
}
