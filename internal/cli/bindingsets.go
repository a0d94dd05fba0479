package cli

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// bindingView is one set: the devices that one VMI has.
type bindingView struct {
	Namespace string          `json:"namespace"`
	VMI       string          `json:"vmi"`
	VMIUID    types.UID       `json:"vmiUID,omitempty"` // none while it is being created
	State     string          `json:"state"`            // Starting, Bound, Attached, Lost or Released
	Node      string          `json:"node,omitempty"`
	Units     int32           `json:"units"`
	Since     time.Time       `json:"since"`
	RequestID string          `json:"requestID"`
	Devices   []bindingDevice `json:"devices"` // by name

	whole bool // all devices of the set are there
}

// bindingDevice is one device of a set.
type bindingDevice struct {
	Name     string `json:"name"`
	Class    string `json:"class"`
	Units    int32  `json:"units"`
	State    string `json:"state"`
	Node     string `json:"node,omitempty"`
	Resource string `json:"resourceName,omitempty"`
	Template bool   `json:"template"` // made from a template of the VM
}

// sets are the devices of a namespace or of all, brought together by the VMIs that have
// them.
type sets struct {
	names    []string // of the VMIs that are asked for; all when there is none
	selector labels.Selector
	devices  map[types.UID]*v1alpha1.GPUDevice
	shown    map[string]bindingView // by request, as they were told last
}

func newSets(names []string, selector labels.Selector) *sets {
	return &sets{names: names, selector: selector, devices: map[types.UID]*v1alpha1.GPUDevice{}, shown: map[string]bindingView{}}
}

// put takes devices as they are now. One that is deleted and kept by nobody is gone.
func (s *sets) put(table *metav1.Table) error {
	for _, row := range table.Rows {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(row.Object.Object)
		if err != nil {
			return err
		}
		d := &v1alpha1.GPUDevice{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(content, d); err != nil {
			return fmt.Errorf("read a GPUDevice: %w", err)
		}
		s.devices[d.UID] = d
		if d.DeletionTimestamp != nil && len(d.Finalizers) == 0 {
			delete(s.devices, d.UID)
		}
	}
	return nil
}

// list returns the sets that are asked for, by namespace and VMI.
func (s *sets) list() (out []bindingView) {
	members := map[string][]*v1alpha1.GPUDevice{}
	for _, d := range s.devices {
		if a := d.Status.Attachment; a != nil && (len(s.names) == 0 || slices.Contains(s.names, a.VMIName)) {
			key := d.Namespace + "/" + a.RequestID
			members[key] = append(members[key], d)
		}
	}
	for _, devices := range members {
		if slices.ContainsFunc(devices, func(d *v1alpha1.GPUDevice) bool { return s.selector.Matches(labels.Set(d.Labels)) }) {
			out = append(out, viewOf(devices))
		}
	}
	slices.SortFunc(out, func(a, b bindingView) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.VMI, b.VMI), strings.Compare(a.RequestID, b.RequestID))
	})
	return out
}

// missing returns the names that are asked for and have no set.
func (s *sets) missing(list []bindingView) []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool {
		return slices.ContainsFunc(list, func(v bindingView) bool { return v.VMI == name })
	})
}

// changed returns the sets that are not as they were told last. Devices are taken and given
// back one by one: a set is told when it is whole, and when it is gone.
func (s *sets) changed() (out []bindingView) {
	gone := maps.Clone(s.shown)
	for _, v := range s.list() {
		key := v.Namespace + "/" + v.RequestID
		delete(gone, key)
		if v.whole && s.shown[key].word() != v.word() {
			s.shown[key] = v
			out = append(out, v)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(gone)) {
		v := gone[key]
		v.State = "Released"
		delete(s.shown, key)
		out = append(out, v)
	}
	return out
}

// word is what is told anew when it changes. Devices get their nodes one by one.
func (v bindingView) word() string {
	if v.State == starting {
		return v.State
	}
	return v.State + " " + v.Node
}

// viewOf brings the devices of a set together; there is one at least.
func viewOf(devices []*v1alpha1.GPUDevice) bindingView {
	slices.SortFunc(devices, func(a, b *v1alpha1.GPUDevice) int { return strings.Compare(a.Name, b.Name) })
	first := devices[0].Status.Attachment
	v := bindingView{Namespace: devices[0].Namespace, VMI: first.VMIName, RequestID: first.RequestID, Since: first.Since.Time, State: stateOf(devices), whole: true}
	var nodes []string
	for _, d := range devices {
		part := bindingDevice{Name: d.Name, Class: d.Spec.ClassName, Units: max(d.Spec.Count, 1), State: string(d.Status.State)}
		part.Template = d.Status.Origin != nil && d.Status.Origin.Kind == v1alpha1.OriginTemplate
		if p := d.Status.Placement; p != nil {
			part.Node, part.Resource = p.Node, p.ResourceName
			nodes = append(nodes, p.Node)
		}
		a := d.Status.Attachment
		v.VMIUID = cmp.Or(v.VMIUID, a.VMIUID)
		if a.Since.Time.Before(v.Since) {
			v.Since = a.Since.Time
		}
		if q := d.Status.BindRequest; q != nil && int(q.Devices) != len(devices) {
			v.whole = false
		}
		v.Units += part.Units
		v.Devices = append(v.Devices, part)
	}
	slices.Sort(nodes)
	v.Node = strings.Join(slices.Compact(nodes), ",")
	return v
}

// starting is a set whose VMI is being created, and that has no node yet.
const starting = "Starting"

// stateOf is one word for a set.
func stateOf(devices []*v1alpha1.GPUDevice) string {
	all := func(states ...v1alpha1.DeviceState) bool {
		return !slices.ContainsFunc(devices, func(d *v1alpha1.GPUDevice) bool { return !slices.Contains(states, d.Status.State) })
	}
	switch {
	case slices.ContainsFunc(devices, func(d *v1alpha1.GPUDevice) bool { return d.Status.State == v1alpha1.DeviceLost }):
		return string(v1alpha1.DeviceLost)
	case all(v1alpha1.DeviceAttached):
		return string(v1alpha1.DeviceAttached)
	case all(v1alpha1.DeviceBound, v1alpha1.DeviceAttached):
		return string(v1alpha1.DeviceBound)
	}
	return starting
}

// bindingTable makes rows of sets, as kubectl prints them.
func bindingTable(list []bindingView, wide bool, now time.Time) *metav1.Table {
	table := &metav1.Table{}
	for _, name := range []string{"VM", "Devices", "Class", "Units", "Node", "State", "Age"} {
		table.ColumnDefinitions = append(table.ColumnDefinitions, metav1.TableColumnDefinition{Name: name, Type: "string"})
	}
	for i := range list {
		v := &list[i]
		var names []string
		units := map[string]int32{}
		for _, d := range v.Devices {
			names, units[d.Class] = append(names, d.Name), units[d.Class]+d.Units
		}
		classes := slices.Sorted(maps.Keys(units))
		devices := strings.Join(names, ",")
		if !wide {
			devices = shortened(names)
		}
		table.Rows = append(table.Rows, metav1.TableRow{
			Cells:  []any{v.VMI, devices, strings.Join(classes, ","), unitsOf(classes, units), cmp.Or(v.Node, "<none>"), v.State, duration.HumanDuration(now.Sub(v.Since))},
			Object: runtime.RawExtension{Object: &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: v.VMI, Namespace: v.Namespace}}},
		})
	}
	return table
}

// unitsOf returns the units of each class, in the order of the classes: "4,1".
func unitsOf(classes []string, units map[string]int32) string {
	var out []string
	for _, class := range classes {
		out = append(out, fmt.Sprint(units[class]))
	}
	return strings.Join(out, ",")
}

// longestNames is how many characters of names a table has, unless it is wide.
const longestNames = 32

// shortened returns the names that there is room for, one at least, and how many more
// there are: "train-a,train-b,+3".
func shortened(names []string) string {
	text := names[0]
	for i, name := range names[1:] {
		if len(text)+1+len(name) > longestNames {
			return fmt.Sprintf("%s,+%d", text, len(names)-1-i)
		}
		text += "," + name
	}
	return text
}
