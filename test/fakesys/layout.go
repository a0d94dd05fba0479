package fakesys

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Columns of a layout table.
const (
	colAddress = iota
	colID
	colClass
	colDriver
	colGroup
	colNUMA
	colPhysFn
	colNote
	columns
)

// ParseLayout reads a layout table: tab-separated columns address,
// vendor:device, class, driver, iommu_group, numa, physfn and note under one
// header line, "-" for none. A row whose second column is "mdev" is a mediated
// device: its address is a UUID, its physfn the parent, its note
// "type=NAME; type_id=ID". A NUMA node of "-" leaves the file out.
func ParseLayout(text string) (Machine, error) {
	var m Machine
	for i, line := range strings.Split(strings.TrimRight(text, "\n"), "\n") {
		if i == 0 || strings.TrimSpace(line) == "" {
			continue
		}
		col := strings.Split(line, "\t")
		if len(col) != columns {
			return Machine{}, fmt.Errorf("parse layout: line %d has %d columns, want %d", i+1, len(col), columns)
		}
		if err := m.addRow(col); err != nil {
			return Machine{}, fmt.Errorf("parse layout: line %d: %w", i+1, err)
		}
	}
	m.Host.IOMMU = gpu.Absent
	if len(numbered(&m.Host)) > 0 {
		m.Host.IOMMU = gpu.Present
	}
	return m, nil
}

func (m *Machine) addRow(col []string) error {
	if col[colID] == "mdev" {
		return m.addMdev(col)
	}
	f, err := layoutFunction(col)
	if err != nil {
		return err
	}
	if col[colNUMA] == "-" {
		m.Omit = append(m.Omit, f.Address.String()+"/numa_node")
	}
	m.Host.Functions = append(m.Host.Functions, f)
	return nil
}

func layoutFunction(col []string) (gpu.Function, error) {
	addr, err := gpu.ParseAddress(col[colAddress])
	if err != nil {
		return gpu.Function{}, err
	}
	id, err := gpu.ParseID(col[colID])
	if err != nil {
		return gpu.Function{}, err
	}
	class, err := gpu.ParseClass(col[colClass])
	if err != nil {
		return gpu.Function{}, err
	}
	f := gpu.Function{Address: addr, ID: id, Class: class, Driver: gpu.Driver(dash(col[colDriver]))}
	if f.Group, err = layoutGroup(col[colGroup]); err != nil {
		return gpu.Function{}, err
	}
	if f.NUMA, err = layoutNUMA(col[colNUMA]); err != nil {
		return gpu.Function{}, err
	}
	if col[colPhysFn] == "-" {
		return f, nil
	}
	pf, err := gpu.ParseAddress(col[colPhysFn])
	f.VF, f.PhysFn = true, &pf
	return f, err
}

func (m *Machine) addMdev(col []string) error {
	parent, err := gpu.ParseAddress(col[colPhysFn])
	if err != nil {
		return err
	}
	md := gpu.Mdev{UUID: col[colAddress], Parent: parent}
	if md.Group, err = layoutGroup(col[colGroup]); err != nil {
		return err
	}
	for field := range strings.SplitSeq(col[colNote], "; ") {
		switch key, value, _ := strings.Cut(field, "="); key {
		case "type":
			md.TypeName = value
		case "type_id":
			md.TypeID = value
		}
	}
	for i := range m.Host.Functions {
		if f := &m.Host.Functions[i]; f.Address == parent {
			f.MdevTypes = append(f.MdevTypes, gpu.MdevType{ID: md.TypeID, Name: md.TypeName})
			md.NUMA = f.NUMA
		}
	}
	m.Host.Mdevs = append(m.Host.Mdevs, md)
	return nil
}

func layoutGroup(s string) (gpu.Group, error) {
	if s == "-" {
		return gpu.NoGroup(), nil
	}
	id, err := strconv.Atoi(s)
	return gpu.InGroup(id), err
}

func layoutNUMA(s string) (*int, error) {
	if s == "-" || s == "-1" {
		return nil, nil
	}
	n, err := strconv.Atoi(s)
	return &n, err
}

func dash(s string) string {
	if s == "-" {
		return ""
	}
	return s
}
