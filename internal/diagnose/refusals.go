package diagnose

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// The refusals of orders and starts that no other package has an error for. Object is
// what is refused, like "GPUDevice tenant-acme/train-a".

// NotEntitled refuses an order of a class whose entitlement neither the namespace nor
// one above it has.
func NotEntitled(object, namespace, class, entitlement string) *Refusal {
	return refuse("GPU0612", object, Values{"namespace": namespace, "class": class, "entitlement": entitlement})
}

// NoClass refuses an order of a class that does not exist.
func NoClass(object, class string) *Refusal {
	return refuse("GPU0620", object, Values{"class": class})
}

// ClassDeleted refuses an order of a class that is being deleted.
func ClassDeleted(object, class string) *Refusal {
	return refuse("GPU0621", object, Values{"class": class})
}

// ClassUnlicensed refuses an order of a class of vGPUs that names no entitlement.
func ClassUnlicensed(object, class, resource string) *Refusal {
	return refuse("GPU0622", object, Values{"class": class, "name": resource})
}

// CountTooLarge refuses an order of more units than one device of the class may have.
func CountTooLarge(object, class string, count, most int32) *Refusal {
	return refuse("GPU0623", object, Values{"class": class, "count": number(count), "most": number(most)})
}

// ClassNotPermitted refuses an order of a class whose resource name is not in the host
// device table.
func ClassNotPermitted(object, class, resource string) *Refusal {
	return refuse("GPU0624", object, Values{"class": class, "name": resource})
}

// ClassNotCounted refuses an order of a class whose resource name is not among the
// names that count as GPUs.
func ClassNotCounted(object, class, resource string) *Refusal {
	return refuse("GPU0625", object, Values{"class": class, "name": resource})
}

// OrderOverloaded refuses an order that carries what is gpuctl's own, or too much; what
// says which: "has the label …".
func OrderOverloaded(object, what string) *Refusal {
	return refuse("GPU0626", object, Values{"text": what})
}

// BadReferences refuses a VM whose annotation cannot be read or names too many devices.
// The error's text is for the tenant.
func BadReferences(object string, err error) *Refusal {
	r := refuse("GPU0630", object, Values{"text": oneLine(err.Error())})
	r.cause = err
	return r
}

// ResourceNamed refuses a VM with devices that names GPUs under domain.resources, too.
func ResourceNamed(object, resource string) *Refusal {
	return refuse("GPU0511", object, Values{"user": object, "name": resource})
}

// NoDevice refuses a start with a device that does not exist.
func NoDevice(object, namespace, device string) *Refusal {
	return refuse("GPU0632", object, Values{"namespace": namespace, "device": device})
}

// DeviceDeleted refuses a start with a device that is being deleted.
func DeviceDeleted(object, namespace, device string) *Refusal {
	return refuse("GPU0633", object, Values{"namespace": namespace, "device": device})
}

// DeviceInUse refuses a start with a device that another VMI of the namespace has claimed.
func DeviceInUse(object, namespace, device, vmi string) *Refusal {
	return refuse("GPU0634", object, Values{"namespace": namespace, "device": device, "vmi": vmi})
}

// DeviceStarting refuses a start with a device that is taken for a VMI which is being
// created.
func DeviceStarting(object, namespace, device, vmi string) *Refusal {
	return refuse("GPU0635", object, Values{"namespace": namespace, "device": device, "vmi": vmi})
}

// DeviceOfTemplate refuses a start with a device that was made from another VM's template.
func DeviceOfTemplate(object, namespace, device, vm string) *Refusal {
	return refuse("GPU0636", object, Values{"namespace": namespace, "device": device, "vm": vm})
}

// VMIExists refuses a start under a name that a VMI has.
func VMIExists(object, namespace, vmi string) *Refusal {
	return refuse("GPU0637", object, Values{"namespace": namespace, "vmi": vmi})
}

// NoLeader refuses a start while no replica leads, and so none places; the problem says
// how that is known.
func NoLeader(object, problem string) *Refusal {
	return refuse("GPU0710", object, Values{"problem": oneLine(problem)})
}

// QueueTooLong refuses a start that so many others are ahead of that it would not be
// answered in time.
func QueueTooLong(object string, waiting, most int) *Refusal {
	return refuse("GPU0711", object, Values{"waiting": number(waiting), "most": number(most)})
}

// NotAnswered refuses a start that was not answered in time.
func NotAnswered(object string, wait time.Duration) *Refusal {
	return refuse("GPU0712", object, Values{"wait": wait.String()})
}

// UnitsLost refuses a start with a device whose units its node serves no more.
func UnitsLost(object, namespace, device, node, resource string) *Refusal {
	return refuse("GPU0713", object, Values{"namespace": namespace, "device": device, "node": node, "name": resource})
}

// NamedBeside refuses a VM with devices that asks for GPUs by their resource name, too.
func NamedBeside(object, entry, resource string) *Refusal {
	return refuse("GPU0638", object, Values{"text": entry, "name": resource})
}

// ClaimsBeside refuses a VM with devices that has claims of dynamic resource allocation.
func ClaimsBeside(object, claim string) *Refusal {
	return refuse("GPU0639", object, Values{"text": claim})
}

// NotItsSet refuses a VMI that is not stored as its start has made it; what says in
// which way: "it has 3 gpus, and its devices 4 units".
func NotItsSet(object, what string) *Refusal {
	return refuse("GPU0644", object, Values{"text": what})
}

// NoBinding refuses a launcher whose VMI has no devices that are taken for it.
func NoBinding(object, what string) *Refusal {
	return refuse("GPU0645", object, Values{"text": what})
}

// ForeignLauncher refuses a pod that looks like a launcher and is not KubeVirt's.
func ForeignLauncher(object, user string) *Refusal {
	return refuse("GPU0646", object, Values{"problem": user})
}

// MigrationTarget refuses the launcher to which a VMI with GPUs would migrate.
func MigrationTarget(object, vmi string) *Refusal {
	return refuse("GPU0647", object, Values{"vmi": vmi})
}

// NoMoreDevices refuses a start with templates whose devices a ResourceQuota does not
// allow; what is the quota's name and its counts.
func NoMoreDevices(object, namespace, what string) *Refusal {
	return refuse("GPU0648", object, Values{"namespace": namespace, "text": oneLine(what)})
}

// EndlessQuantity refuses an object with a quantity that nobody can reckon with; at is
// its field.
func EndlessQuantity(object, at, text string) *Refusal {
	const most = 120 // of what is the tenant's
	return refuse("GPU0649", object, Values{"name": cutTo(oneLine(at), most), "text": cutTo(oneLine(text), most)})
}

// Told is a refusal as the binder has answered it: the text is the tenant's.
func Told(object, code, text string) *Refusal {
	text = strings.TrimPrefix(text, code+": ")
	f := Finding{Code: Code(code), Severity: Error, Object: object, Message: text}
	if e := catalogIndex()[f.Code]; e != nil {
		f.Severity = e.Severity
	}
	return &Refusal{Finding: f, Tenant: text}
}

// Unsuited reports the refusal of a start for which units are free where its launcher
// cannot run.
func (r *Refusal) Unsuited() bool { return r.Code == "GPU0704" }

// KeptBy adds to the refusal of a start that the volumes of claims keep its launcher to
// some nodes. devices are those that it names.
func (r *Refusal) KeptBy(claims, devices []string) *Refusal {
	what := "its devices"
	if len(devices) > 0 {
		what = someOf("GPUDevice", devices)
	}
	text := "; what " + someOf("PersistentVolumeClaim", claims) + " is bound to keeps it to nodes where " + what + " cannot be had"
	out := *r
	out.Message, out.Tenant = out.Message+text, cut(out.Tenant+text)
	return &out
}

// someOf lists objects of a kind: the first three, and how many more there are.
func someOf(kind string, names []string) string {
	const most = 3
	if n := len(names) - most; n > 0 {
		return fmt.Sprintf("%s %s and %d more", kind, strings.Join(names[:most], ", "), n)
	}
	return kind + " " + strings.Join(names, ", ")
}

// LauncherTooLong refuses a start whose VM asks more of a node than a bind request takes,
// both in bytes.
func LauncherTooLong(object string, bytes, most int) *Refusal {
	return refuse("GPU0715", object, Values{"count": number(bytes), "most": number(most)})
}

// LauncherUnreadable refuses a start whose bind request says what no binder of this
// version can read.
func LauncherUnreadable(object, problem string) *Refusal {
	return refuse("GPU0716", object, Values{"problem": oneLine(problem)})
}

func number[N int | int32](n N) string { return strconv.FormatInt(int64(n), 10) }
