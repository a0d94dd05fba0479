package gpu_test

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// run is one run of a plugin release on a layout, and a row for each name that
// it registered.
type run struct{ layout, variant, release string }

// readRuns groups a table by its columns that name a run. The run
// 03/nopciids is left out: in it the image has lost its pci.ids file, which
// nothing on the host shows.
func readRuns(t *testing.T, path string, release int) map[run][][]string {
	t.Helper()
	runs := map[run][][]string{}
	for _, row := range readTSV(t, path) {
		layout, variant, _ := strings.Cut(row[0], "/")
		if release == 2 {
			variant = row[1]
		}
		if key := (run{layout, variant, row[release]}); variant != "nopciids" {
			runs[key] = append(runs[key], row)
		}
	}
	return runs
}

// hostOf returns the host of a run as the plugin found it when it started.
func hostOf(t *testing.T, r run) *gpu.Host {
	t.Helper()
	h := readLayout(t, r.layout)
	if r.variant == "iommufd" {
		h.IOMMUFD = gpu.Present
		for i := range h.Functions {
			h.Functions[i].VFIONode = gpu.Present
		}
	}
	return h
}

func TestRegistrationsFollowRunsOfThePlugin(t *testing.T) {
	for key, rows := range readRuns(t, "vectors/plugin_runs.tsv", 1) {
		t.Run(key.layout+key.variant+"/"+key.release, func(t *testing.T) {
			var wantNames []string
			got := mustRelease(t, key.release).Registrations(hostOf(t, key))
			for _, row := range rows {
				wantNames = append(wantNames, row[2])
				checkRun(t, got, row)
			}
			if diff := cmp.Diff(wantNames, namesOf(got)); diff != "" {
				t.Errorf("names registered (-want +got):\n%s", diff)
			}
		})
	}
}

// checkRun compares one row of plugin_runs.tsv: name, count, device ids, the
// variable for the first and for the first two of them, note.
func checkRun(t *testing.T, got []gpu.Registration, row []string) {
	t.Helper()
	i := slices.IndexFunc(got, func(g gpu.Registration) bool { return string(g.Name) == row[2] })
	if i < 0 {
		t.Errorf("%s is not registered", row[2])
		return
	}
	g, ids := got[i], strings.Split(row[4], ",")
	if refused := strings.Contains(row[7], "NAME INVALID"); refused != (g.Refused != nil) {
		t.Errorf("%s: refused: %v, want %v", g.Name, g.Refused, refused)
	}
	if row[3] != strconv.Itoa(len(ids)) {
		t.Fatalf("the row counts %s ids, and lists %d", row[3], len(ids))
	}
	if collides := strings.Contains(row[7], "COLLISION"); collides != g.Collides() {
		t.Errorf("%s: collides: %v, want %v", g.Name, g.Collides(), collides)
	}
	// Under a collision the run saw the list of one of the two servers.
	if !slices.ContainsFunc(listsOf(&g), func(list []string) bool { return slices.Equal(list, ids) }) {
		t.Errorf("%s lists %v, want %v", g.Name, listsOf(&g), ids)
	}
	checkEnv(t, &g, row[5], ids[:1])
	if len(ids) > 1 {
		checkEnv(t, &g, row[6], ids[:2])
	}
}

func checkEnv(t *testing.T, g *gpu.Registration, want string, ids []string) {
	t.Helper()
	if strings.HasPrefix(want, "ERR ") {
		return // a race for the socket: the server was just being restarted
	}
	env, err := g.Allocate(ids...)
	if err != nil || env.String() != want {
		t.Errorf("%s: Allocate(%v) = %q, %v, want %q", g.Name, ids, env, err, want)
	}
	key, _, _ := strings.Cut(want, "=")
	prefix, _, _ := strings.Cut(key, "_NVIDIA_COM_")
	asked := prefix + "_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_").Replace(string(g.Name)))
	if got := g.Release.LauncherFindsEnv(g.Name); got != (key == asked) {
		t.Errorf("%s: virt-launcher asks for %s and gets %s: found is %v", g.Name, asked, key, got)
	}
}

// listsOf returns what each of the servers behind a registration lists.
func listsOf(g *gpu.Registration) [][]string {
	if !g.Collides() {
		return [][]string{g.UnitIDs()}
	}
	var out [][]string
	for _, d := range g.DeviceIDs() {
		var list []string
		for _, u := range g.Units {
			if u.Function.ID.Device == d {
				list = append(list, u.ID)
			}
		}
		out = append(out, list)
	}
	return out
}

// In the health runs the node of one group was removed while the plugin ran;
// the note has the lists of unhealthy ids as they grew.
func TestUnhealthyFollowsRunsOfThePlugin(t *testing.T) {
	removed := map[string]int{"01": 25, "03": 30}
	for key, rows := range readRuns(t, "vectors/plugin_runs.tsv", 1) {
		if key.variant != "health" {
			continue
		}
		h := hostOf(t, key)
		for i := range h.Functions {
			if id, ok := h.Functions[i].Group.ID(); ok && id == removed[key.layout] {
				h.Functions[i].VFIONode = gpu.Absent
			}
		}
		got := mustRelease(t, key.release).Registrations(h)
		for i, row := range rows {
			want := ""
			for part := range strings.SplitSeq(row[7], "unhealthy=[") {
				if ids, _, ok := strings.Cut(part, "]"); ok {
					want = ids
				}
			}
			checkUnhealthy(t, &got[i], want)
		}
	}
}

func checkUnhealthy(t *testing.T, g *gpu.Registration, want string) {
	t.Helper()
	var ids []string
	for _, u := range g.Units {
		if u.Unhealthy {
			ids = append(ids, u.ID)
		}
		if u.AllocateFails {
			t.Errorf("%s: %s has no /dev/iommu to fail by", g.Name, u.ID)
		}
	}
	if got := strings.Join(ids, ","); got != want {
		t.Errorf("%s %s: unhealthy %s, want %s", g.Release, g.Name, got, want)
	}
	all := int64(len(g.Units))
	if diff := cmp.Diff([]gpu.Count{{Capacity: all, Allocatable: all - int64(len(ids))}}, g.Shown()); diff != "" {
		t.Errorf("%s %s (-want +got):\n%s", g.Release, g.Name, diff)
	}
}

func TestShownFollowsKubelet(t *testing.T) {
	for key, rows := range readRuns(t, "vectors/kubelet_capacity.tsv", 2) {
		t.Run(key.layout+key.variant+"/"+key.release, func(t *testing.T) {
			refused := map[string]bool{}
			var shown []gpu.Registration
			for _, g := range mustRelease(t, key.release).Registrations(hostOf(t, key)) {
				if g.Refused != nil {
					refused["rejected "+string(g.Name)] = true
				}
				if g.Shown() != nil {
					shown = append(shown, g)
				}
			}
			if len(shown) != len(rows) {
				t.Fatalf("the node shows %v, want %d names", namesOf(shown), len(rows))
			}
			for i, row := range rows {
				checkShown(t, &shown[i], row)
				rejected := map[string]bool{}
				for part := range strings.SplitSeq(row[9], "; ") {
					rejected[part] = true
				}
				delete(rejected, "")
				if diff := cmp.Diff(rejected, refused); diff != "" {
					t.Errorf("names refused (-want +got):\n%s", diff)
				}
			}
		})
	}
}

// checkShown compares one row of kubelet_capacity.tsv: name, capacity,
// allocatable and the ids that are allocatable.
func checkShown(t *testing.T, g *gpu.Registration, row []string) {
	t.Helper()
	if string(g.Name) != row[3] {
		t.Fatalf("%s is shown, want %s", g.Name, row[3])
	}
	var want gpu.Count
	want.Capacity, _ = strconv.ParseInt(row[4], 10, 64)
	want.Allocatable, _ = strconv.ParseInt(row[5], 10, 64)
	if got := g.Shown(); !slices.Contains(got, want) || !g.Collides() && len(got) != 1 {
		t.Errorf("%s shows %v, want %v", g.Name, got, want)
	}
	if want.Allocatable == 0 {
		return
	}
	ids := strings.Split(row[6], ",")
	slices.Sort(ids)
	if !slices.ContainsFunc(listsOf(g), func(list []string) bool {
		slices.Sort(list)
		return slices.Equal(list, ids)
	}) {
		t.Errorf("%s lists %v, want %v", g.Name, listsOf(g), ids)
	}
}

func namesOf(regs []gpu.Registration) []string {
	var out []string
	for _, g := range regs {
		out = append(out, string(g.Name))
	}
	return out
}
