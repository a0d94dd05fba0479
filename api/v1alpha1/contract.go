package v1alpha1

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// What VMs and namespaces say to gpuctl.
const (
	// AnnotationDevices is on the template of a VM and so on its VMIs: which devices it
	// wants, as References encodes them.
	AnnotationDevices = GroupName + "/devices"
	// LabelDeviceReference is with that annotation, and only with it: by it webhooks are
	// called. Its value is ValueTrue.
	LabelDeviceReference = GroupName + "/device-reference"
	// LabelTemplateDevice is on each device that gpuctl made from a template, to select
	// them. What tells them apart is status.origin. Its value is ValueTrue.
	LabelTemplateDevice = GroupName + "/template-device"
	// AnnotationRequestID is on a VMI: the random id of the start that made it, 128 bits as
	// 32 lower-case hexadecimal digits. On a template device it is that of the start that
	// made the device.
	AnnotationRequestID = GroupName + "/request-id"
	// AnnotationNudged is on a VM that waited for GPUs: when gpuctl had KubeVirt look at it
	// again.
	AnnotationNudged = GroupName + "/nudged"
	// LabelParent is on a namespace: the name of the one above it.
	LabelParent = GroupName + "/parent"
	// LabelTenantUID is on a GPUUsageRecord: the UID of the tenant's namespace.
	LabelTenantUID = GroupName + "/tenant-uid"
	// ValueTrue is the value of labels that are there or not.
	ValueTrue = "true"
)

// AnnotationLedger is on devices that a leader has fenced after the ledger was made anew:
// the UID of that ledger. On the ledger it is its own UID, by which a copy is known.
const AnnotationLedger = GroupName + "/ledger"

// FinalizerUnits is on a device for as long as it holds units.
const FinalizerUnits = GroupName + "/units"

// LabelEntitlement returns the key of the label by which a namespace, and those below
// it, has an entitlement; its value is ValueTrue. All of gpuctl's labels of namespaces
// have the prefix "gpuctl.dev/", so that one rule can say who may write them.
func LabelEntitlement(name string) string { return GroupName + "/entitlement." + name }

// BudgetAll is the key of the budget for all GPUs together, in a ResourceQuota's hard
// limits and in Cozystack's resourceQuotas. All budgets count units.
const BudgetAll = GroupName + "/gpus"

// BudgetOfClass returns the key of the budget for a class.
func BudgetOfClass(class string) string { return "class." + GroupName + "/" + class }

// BudgetOfResource returns the key of the budget for a resource name in a ResourceQuota.
// In Cozystack it is the resource name itself.
func BudgetOfResource(resourceName string) string { return "requests." + resourceName }

// Limits of what can be asked for.
const (
	MaxUnitsPerDevice = 64 // and so the greatest maxCount of a class
	MaxDevicesPerSet  = 64 // devices and templates of one VM together
	MaxClassName      = 63 // a part of the key of a budget
	MaxDeviceName     = 60 // with a dash and two digits it is 63: a DNS label
	MaxEntitlement    = 51 // with "entitlement." it is 63: the name of a label
)

// GPUName returns the name, in a VMI's gpus, of a device's unit; the first is 0. No two
// units of one namespace have the same: what is behind the last dash is the number.
func GPUName(device string, unit int) string { return device + "-" + strconv.Itoa(unit) }

// SettingsName is the name of the ConfigMap, in gpuctl's own namespace, that the chart
// makes and admission policies take as parameter.
const SettingsName = "gpuctl-settings"

// SettingResourceNames is its key with the resource names that count as GPUs: a JSON
// list of strings.
const SettingResourceNames = "resourceNames"

// SettingTenants and SettingProvider are its keys with the selector of tenants' namespaces
// and with the provider of their tree, as the controller's configuration has them.
const (
	SettingTenants  = "tenants"
	SettingProvider = "provider"
)

// EncodeResourceNames returns the value of SettingResourceNames: sorted, each name once.
func EncodeResourceNames(names []string) string {
	out, _ := json.Marshal(slices.Compact(slices.Sorted(slices.Values(names)))) // strings: no error
	if len(names) == 0 {
		return "[]"
	}
	return string(out)
}

// DecodeResourceNames reads the value of SettingResourceNames out of the data of the
// ConfigMap. The error names every entry that is no resource name.
func DecodeResourceNames(data map[string]string) ([]string, error) {
	text, ok := data[SettingResourceNames]
	if !ok {
		return nil, fmt.Errorf("read ConfigMap %s: it has no key %q", SettingsName, SettingResourceNames)
	}
	names := []string{}
	if _, err := decodeStrictly(text, &names); err != nil {
		return nil, fmt.Errorf("read %s of ConfigMap %s: want a JSON list of strings: %w", SettingResourceNames, SettingsName, err)
	}
	var errs []error
	for i, name := range names {
		if err := checkResourceName(name); err != nil {
			errs = append(errs, fmt.Errorf("read %s of ConfigMap %s: entry %d: %w", SettingResourceNames, SettingsName, i, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return names, nil
}

// checkResourceName says why a name is not that of an extended resource.
func checkResourceName(name string) error {
	if problems := validation.IsQualifiedName(name); len(problems) > 0 {
		return fmt.Errorf("%q: %s", name, problems[0])
	}
	if !strings.Contains(name, "/") {
		return fmt.Errorf("%q has no domain: an extended resource is written domain/name", name)
	}
	return nil
}
