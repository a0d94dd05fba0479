package gpu_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// What the real plugin and kubelet did is in testdata/vectors: naming_*.tsv and
// plugin_names.tsv are the plugin's own naming over ids, plugin_runs.tsv is
// what it registered on the made-up hosts of layouts/, kubelet_capacity.tsv
// what kubelet's device manager then showed, real_pairs.tsv is from public
// reports.

// readTSV returns the rows of a table below testdata, without its header.
func readTSV(t testing.TB, path string) [][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", path))
	if err != nil {
		t.Fatal(err)
	}
	var rows [][]string
	for line := range strings.Lines(string(text)) {
		rows = append(rows, strings.Split(strings.TrimRight(line, "\n"), "\t"))
	}
	if len(rows) < 2 {
		t.Fatalf("%s has no rows", path)
	}
	return rows[1:]
}

func mustDeviceID(t testing.TB, s string) gpu.DeviceID {
	t.Helper()
	d, err := gpu.ParseDeviceID(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func mustAddress(t testing.TB, s string) gpu.Address {
	t.Helper()
	a, err := gpu.ParseAddress(s)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func mustRelease(t testing.TB, s string) gpu.Release {
	t.Helper()
	r, err := gpu.ParseRelease(s)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// readLayout reads a host of testdata/vectors/layouts: columns address, id,
// class, driver, group, numa, physfn and note. A mediated device has its UUID
// for an address, "mdev" for an id, its parent for a physfn, and its type in
// the note.
func readLayout(t testing.TB, name string) *gpu.Host {
	t.Helper()
	h := &gpu.Host{Node: "layout-" + name}
	for _, row := range readTSV(t, "vectors/layouts/"+name+".tsv") {
		if row[1] == "mdev" {
			h.Mdevs = append(h.Mdevs, readMdev(t, row))
			continue
		}
		h.Functions = append(h.Functions, readFunction(t, row))
	}
	return h
}

func readFunction(t testing.TB, row []string) gpu.Function {
	t.Helper()
	id, err := gpu.ParseID(row[1])
	if err != nil {
		t.Fatal(err)
	}
	class, err := gpu.ParseClass(row[2])
	if err != nil {
		t.Fatal(err)
	}
	f := gpu.Function{Address: mustAddress(t, row[0]), ID: id, Class: class, Group: readGroup(t, row[4])}
	if row[3] != "-" {
		f.Driver = gpu.Driver(row[3])
	}
	if numa, err := strconv.Atoi(row[5]); err == nil && numa >= 0 {
		f.NUMA = &numa
	}
	if row[6] != "-" {
		physFn := mustAddress(t, row[6])
		f.VF, f.PhysFn = true, &physFn
	}
	return f
}

func readMdev(t testing.TB, row []string) gpu.Mdev {
	t.Helper()
	m := gpu.Mdev{UUID: row[0], Group: readGroup(t, row[4]), Parent: mustAddress(t, row[6])}
	for part := range strings.SplitSeq(row[7], "; ") {
		switch key, value, _ := strings.Cut(part, "="); key {
		case "type":
			m.TypeName = value
		case "type_id":
			m.TypeID = value
		}
	}
	return m
}

func readGroup(t testing.TB, s string) gpu.Group {
	t.Helper()
	if s == "-" {
		return gpu.NoGroup()
	}
	id, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return gpu.InGroup(id)
}
