package gpu

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// Release is a release of NVIDIA/kubevirt-gpu-device-plugin. The zero Release
// is "unknown".
type Release struct{ Major, Minor, Patch int }

// Newest is the newest plugin release whose behaviour is known here.
func Newest() Release { return Release{1, 6, 0} }

// ParseRelease reads "v1.5.0" or "1.5.0"; what follows a "-" or "+" is ignored.
func ParseRelease(s string) (Release, error) {
	core := strings.TrimPrefix(s, "v")
	if i := strings.IndexAny(core, "-+"); i >= 0 {
		core = core[:i]
	}
	parts := strings.Split(core, ".")
	var n [3]int
	if len(parts) != len(n) {
		return Release{}, fmt.Errorf("parse device plugin release %q: want v1.2.3", s)
	}
	for i, p := range parts {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return Release{}, fmt.Errorf("parse device plugin release %q: want v1.2.3", s)
		}
		n[i] = int(v)
	}
	return Release{n[0], n[1], n[2]}, nil
}

// String returns "v1.5.0".
func (r Release) String() string { return fmt.Sprintf("v%d.%d.%d", r.Major, r.Minor, r.Patch) }

// Known reports whether r names a release at all.
func (r Release) Known() bool { return r != Release{} }

// Compare orders releases by age, oldest first.
func (r Release) Compare(o Release) int {
	return cmp.Or(cmp.Compare(r.Major, o.Major), cmp.Compare(r.Minor, o.Minor), cmp.Compare(r.Patch, o.Patch))
}
