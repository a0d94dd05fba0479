package diagnose

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// synced wraps a launcher's error as virt-handler's SyncFailed event shows it.
func synced(text string) string {
	return `server error. command SyncVMI failed: "` + text + `"`
}

// refused wraps QEMU's last words as libvirt and virt-handler pass them on.
func refused(text string) string {
	return synced("LibvirtError(Code=1, Domain=10, Message='internal error: qemu unexpectedly closed the monitor: 2026-06-28T10:05:00.313360Z qemu-kvm: -device vfio-pci,host=0000:01:00.0,id=ua-gpu-gpu1,bus=pci.6,addr=0x0: " + text + "')")
}

func fromLibvirt(text string) string {
	return synced("LibvirtError(Code=1, Domain=10, Message='" + text + "')")
}

func TestSymptoms(t *testing.T) {
	const (
		unviable  = `vfio 0000:01:00.0: group 1 is not viable\nPlease ensure all devices within the iommu_group are bound to their vfio bus driver.`
		dry       = "admission webhook \"virtualmachine-validator.kubevirt.io\" denied the request: "
		admission = "Pod was rejected: Allocate failed due to "
	)
	tests := map[string]struct {
		text, reason string
		want         Code
	}{
		// virt-api and virt-controller.
		"gpu not permitted":         {text: "failed to render launch manifest: GPU nvidia.com/GH100_H200_SXM_141GB is not permitted in permittedHostDevices configuration", want: "GPU0302"},
		"host device not permitted": {text: "failed to render launch manifest: HostDevice nvidia.com/TU104GL_TESLA_T4 is not permitted in permittedHostDevices configuration", want: "GPU0302"},
		"not permitted of old":      {text: "The request is invalid: spec.template.spec.GPUs: GPU nvidia.com/TU102_TITAN_RTX is not permitted in kubevirt-host-device-plugin-config", want: "GPU0302"},
		"gate closed":               {text: dry + "spec.template.spec.domain.devices.HostDevices: Host Devices feature gate is not enabled in kubevirt-config", want: "GPU0301"},
		"gpu gate closed":           {text: dry + "GPU feature gate is not enabled in kubevirt-config", want: "GPU0315"},
		"launch manifest":           {text: "failed to render launch manifest: Hugepages can not be equal to zero", want: "GPU0513"},
		"pod security":              {text: "failed to create pod for vmi tenant-a/trainer, it needs a privileged namespace to run: pods \"virt-launcher-trainer-x\" is forbidden: violates PodSecurity \"restricted:latest\"", want: "GPU0513"},
		"privileged namespace":      {text: "failed to create pod for vmi tenant-a/trainer, it needs a privileged namespace to run: denied", want: "GPU0513"},
		"quota":                     {text: "Error creating pod: pods \"virt-launcher-trainer-x\" is forbidden: exceeded quota: gpus, requested: requests.nvidia.com/GA102GL_A10=1, used: 1, limited: 1", want: "GPU0513"},
		"dra gate of 1.6":           {text: dry + "vmi.spec.domain.devices.gpus contains DRA enabled GPUs but feature gate is not enabled", want: "GPU0513"},
		"dra gate of 1.8":           {text: "vmi.spec.domain.devices.hostDevices contains DRA enabled HostDevices but feature gate is not enabled", want: "GPU0513"},
		"dra gate of 1.9":           {text: "vmi.spec.domain.devices.gpus contains DRA enabled GPUs but feature gate is not enabled", want: "GPU0513"},
		"dra mixed":                 {text: "vmi.spec.domain.devices.gpus contains both DRA and non-DRA GPUs; each GPU must be either DRA or non-DRA", want: "GPU0513"},
		"dra claim missing":         {text: "vmi.spec.resourceClaims must specify all claims used in vmi.spec.domain.devices.gpus and vmi.spec.domain.devices.hostDevices", want: "GPU0513"},

		// The scheduler.
		"insufficient":            {text: "0/1 nodes are available: 1 Insufficient nvidia.com/GA100_A100_SXM4_40GB.", want: "GPU0506"},
		"insufficient of several": {text: "0/3 nodes are available: 1 Insufficient devices.kubevirt.io/kvm, 2 Insufficient nvidia.com/GA102GL_A10. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.", want: "GPU0506"},
		"no kvm":                  {text: "0/3 nodes are available: 3 Insufficient devices.kubevirt.io/kvm.", want: "GPU0507"},
		"no memory":               {text: "0/3 nodes are available: 3 Insufficient memory.", want: "GPU0507"},
		"taint":                   {text: "0/3 nodes are available: 1 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }, 2 node(s) didn't match Pod's node affinity/selector.", want: "GPU0507"},
		"no claim":                {text: "0/2 nodes are available: 1 cannot allocate all claims, 1 node(s) didn't match Pod's node affinity/selector.", want: "GPU0507"},

		// Kubelet.
		"admission":            {reason: "UnexpectedAdmissionError", text: admission + "rpc error: code = Unknown desc = invalid allocation request: unknown device: 0000:41:00.0, which is unexpected", want: "GPU0508"},
		"by reason":            {reason: "UnexpectedAdmissionError", text: "something new", want: "GPU0508"},
		"unavailable":          {text: admission + "requested number of devices unavailable for nvidia.com/GA102GL_A10. Requested: 1, Available: 0, which is unexpected", want: "GPU0508"},
		"unhealthy":            {text: "no healthy devices present; cannot allocate unhealthy devices nvidia.com/GA102GL_A10", want: "GPU0508"},
		"no longer healthy":    {text: "previously allocated devices are no longer healthy; cannot allocate unhealthy devices nvidia.com/GA102GL_A10", want: "GPU0508"},
		"unregistered":         {text: "cannot allocate unregistered device nvidia.com/GA102GL_A10", want: "GPU0508"},
		"unregistered of old":  {text: "can't allocate unregistered device nvidia.com/GA102GL_A10", want: "GPU0508"},
		"preferred allocation": {text: "Pod Allocate failed due to device plugin GetPreferredAllocation rpc failed with err: rpc error: code = Unknown desc = error getting list of preferred allocation devices, which is unexpected", want: "GPU0508"},
		"no iommufd device":    {text: admission + "rpc error: code = Unknown desc = could not determine iommufd device for device 0000:41:00.0: no iommufd device found, which is unexpected", want: "GPU0508"},
		"no /dev/iommu":        {text: admission + "rpc error: code = Unknown desc = IOMMUFD not supported on this node (/dev/iommu not found), which is unexpected", want: "GPU0508"},
		"dra prepare":          {reason: "FailedPrepareDynamicResources", text: "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources: rpc error: code = DeadlineExceeded desc = context deadline exceeded", want: "GPU0529"},
		"dra device spec":      {text: "unable to get device spec for 0cafe-gpu-0: error creating CDI device: device handle from UUID: Not Found", want: "GPU0529"},
		"vfio cdev":            {text: "Error: failed to generate container \"compute\" spec: failed to generate spec: lstat /dev/vfio/devices/vfio0: no such file or directory", want: "GPU0525"},

		// virt-launcher.
		"numbers of 1.5":       {text: synced(`failed to create GPU host-devices: the number of GPU/s do not match the number of devices:\nGPU: [{gpu1 nvidia.com/gpu}]\nDevice: []`), want: "GPU0524"},
		"numbers of 1.6":       {text: synced(`failed to create GPU host-devices: the number of device plugin GPU/s do not match the number of devices:\nGPU: [{gpu1 nvidia.com/20b0}]\nDevice: []`), want: "GPU0524"},
		"numbers, host device": {text: synced(`the number of device plugin HostDevice/s do not match the number of devices:\nHostDevice: [{a b}]\nDevice: []`), want: "GPU0524"},
		"numbers, misspelt":    {text: `failed to creade GPU host-devices: the number of GPU/s do not match the number of devices:\nGPU: [{gpu1 nvidia.com/20b0}]\nDevice: []`, want: "GPU0524"},
		"misspelt, other":      {text: "failed to creade GPU host-devices: failed to create hostdevice for gpu1: no address", want: "GPU0524"},
		"no more addresses":    {text: synced("failed to create GPU host-devices: failed to create hostdevice for gpu2: no more addresses to allocate for resource nvidia.com/GA102GL_A10"), want: "GPU0524"},
		"no such resource":     {text: synced("failed to create GPU host-devices: failed to create hostdevice for gpu1: resource nvidia.com/gpu does not exist"), want: "GPU0524"},
		"bare no resource":     {text: "resource nvidia.com/gpu does not exist", want: "GPU0524"},
		"dra numbers":          {text: synced(`failed to create DRA GPU host-devices: the number of DRA GPU/s do not match the number of devices:\nGPU: [{}]\nDevice: []`), want: "GPU0524"},
		"dra no address":       {text: "GPU gpu1 has no mdevUUID or pciBusID in metadata for claim gpu-claim request gpu (mdev: , pci: )", want: "GPU0524"},
		"no domain":            {text: "failed to generate libvirt domain from VMI spec", want: "GPU0528"},
		"sync":                 {text: "Failed to sync vmi", want: "GPU0528"},

		// QEMU.
		"interrupt busy":       {text: refused("vfio 0000:01:00.1: Failed to set up TRIGGER eventfd signaling for interrupt INTX-0: VFIO_DEVICE_SET_IRQS failure: Device or resource busy"), want: "GPU0528"},
		"group not viable":     {text: refused(unviable), want: "GPU0520"},
		"map dma":              {text: refused("VFIO_MAP_DMA failed: Cannot allocate memory"), want: "GPU0521"},
		"map region":           {text: refused("failed to setup container for group 12: memory listener initialization failed: Region ram-node0: vfio_container_dma_map(0x55, 0x0, 0x40, 0x7f) = -12 (Cannot allocate memory)"), want: "GPU0521"},
		"map of reserved":      {text: refused("failed to setup container for group 12: memory listener initialization failed: Region pc.bios: vfio_container_dma_map (0x5632ad2e1e80, 0xfffc0000, 0x40000, 0x7fdf48200000) = -2 (No such file or directory)"), want: "GPU0528"},
		"no vfio node":         {text: refused("vfio 0000:01:00.0: failed to open /dev/vfio/1: No such file or directory"), want: "GPU0525"},
		"vfio node newer":      {text: refused("vfio 0000:01:00.0: Could not open '/dev/vfio/17': Operation not permitted"), want: "GPU0525"},
		"vfio node busy":       {text: refused("vfio 0000:01:00.0: failed to open /dev/vfio/1: Device or resource busy"), want: "GPU0523"},
		"vfio node busy newer": {text: refused("vfio 0000:01:00.0: Could not open '/dev/vfio/17': Device or resource busy"), want: "GPU0523"},
		"getting device":       {text: refused(`vfio 0000:01:00.0: error getting device from group 1: No such device\nVerify all devices in group 1 are bound to vfio-<bus> or pci-stub and not already in use`), want: "GPU0522"},
		"getting device, busy": {text: refused(`vfio 0000:01:00.0: error getting device from group 1: Device or resource busy\nVerify all devices in group 1 are bound to vfio-<bus> or pci-stub and not already in use`), want: "GPU0523"},
		"getting a vgpu":       {text: synced("LibvirtError(Code=1, Domain=10, Message='internal error: qemu unexpectedly closed the monitor: vfio 7ece9ff1-b292-474e-aaf4-58e863ae2053: error getting device from group 12: Input/output error')"), want: "GPU0527"},
		"getting a vgpu, cut":  {text: "vfio [hidden]: error getting device from group 12: Input/output error", want: "GPU0527"},
		"no group":             {text: refused("vfio 0000:8a:00.0: no iommu_group found: No such file or directory"), want: "GPU0530"},
		"no iommu models":      {text: refused("vfio 0000:8a:00.0: failed to setup container for group 13: Failed to set iommu for container: No available IOMMU models"), want: "GPU0530"},
		"no container":         {text: refused("vfio 0000:8a:00.0: failed to setup container for group 13: Failed to set group container: Invalid argument"), want: "GPU0530"},
		"no remapping":         {text: refused("vfio 0000:8a:00.0: failed to setup container for group 13: Failed to set iommu for container: Operation not permitted"), want: "GPU0530"},
		"iommufd bind":         {text: refused("vfio 0000:8a:00.0: error bind device fd=21 to iommufd=20: Operation not permitted"), want: "GPU0525"},
		"iommufd bind, busy":   {text: refused("vfio 0000:8a:00.0: error bind device fd=21 to iommufd=20: Device or resource busy"), want: "GPU0523"},
		"no host device":       {text: refused("vfio 0000:8a:00.0: no such host device: No such file or directory"), want: "GPU0522"},
		"cannot reset":         {text: refused("vfio: Cannot reset device 0000:8a:00.0, no available reset mechanism."), want: "GPU0526"},
		"something else":       {text: refused("cannot set up something new"), want: "GPU0528"},

		// libvirt.
		"locked memory":   {text: fromLibvirt("cannot limit locked memory of process 87 to 34359738368: Operation not permitted"), want: "GPU0521"},
		"no passthrough":  {text: fromLibvirt("unsupported configuration: host doesn't support passthrough of host PCI devices"), want: "GPU0530"},
		"header":          {text: fromLibvirt("Unknown PCI header type '127' for device '0000:41:00.0'"), want: "GPU0522"},
		"unmanaged":       {text: fromLibvirt("Unmanaged PCI device 0000:41:00.0 must be manually detached from the host"), want: "GPU0525"},
		"reset":           {text: fromLibvirt("Unable to reset PCI device 0000:41:00.0: no FLR, PM reset or bus reset available"), want: "GPU0526"},
		"mdev":            {text: fromLibvirt("mediated device '7ece9ff1-b292-474e-aaf4-58e863ae2053' not found"), want: "GPU0527"},
		"mdev, cut":       {text: fromLibvirt("mediated device '[hidden]' not found"), want: "GPU0527"},
		"config space":    {text: fromLibvirt("Failed to open config space file '/sys/bus/pci/devices/0000:06:00.0/config': Permission denied"), want: "GPU0525"},
		"in use by other": {text: fromLibvirt("Requested operation is not valid: PCI device 0000:06:00.0 is in use by driver QEMU, domain tenant_other"), want: "GPU0523"},
		"gone":            {text: fromLibvirt("Device 0000:06:00.0 not found: could not access /sys/bus/pci/devices/0000:06:00.0/config: No such file or directory"), want: "GPU0522"},

		// The kernel.
		"memlock":           {text: "vfio_pin_pages_remote: RLIMIT_MEMLOCK (67108864) exceeded", want: "GPU0521"},
		"unsafe interrupts": {text: `vfio_iommu_type1_attach_group: No interrupt remapping support.  Use the module param "allow_unsafe_interrupts" to enable VFIO IOMMU support on this platform`, want: "GPU0530"},
		"not ready":         {text: "vfio-pci 0000:07:00.0: not ready 65535ms after FLR; giving up", want: "GPU0526"},
		"bar":               {text: "vfio-pci 0000:07:00.0: BAR 1: can't reserve [mem 0xd0000000-0xdfffffff 64bit pref]", want: "GPU0523"},
		"one to one":        {text: "vfio-pci 0000:07:00.0: Firmware has requested this device have a 1:1 IOMMU mapping, rejecting configuring the device without a 1:1 mapping. Contact your platform vendor.", want: "GPU0530"},
		"vgpu start":        {text: "[nvidia-vgpu-vfio] 7ece9ff1-b292-474e-aaf4-58e863ae2053: start failed. status: 0x1", want: "GPU0527"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := codesOf(read(&Message{Reason: tt.reason, Text: tt.text}))
			if diff := cmp.Diff([]Code{tt.want}, got); diff != "" {
				t.Errorf("(-want +got):\n%s%s", diff, tt.text)
			}
		})
	}
}

func codesOf(said []symptom) []Code {
	out := []Code{}
	for _, s := range said {
		out = append(out, s.code)
	}
	return out
}

// TestNoSymptoms has what is normal, and trouble that is none of the devices'.
func TestNoSymptoms(t *testing.T) {
	tests := map[string]Message{
		"not running":            {Text: "Guest VM is not reported as running"},
		"not scheduled":          {Text: "virt-launcher pod has not yet been scheduled"},
		"no instance":            {Text: "VMI does not exist"},
		"not migratable":         {Text: "cannot migrate VMI with host devices", Source: "condition LiveMigratable"},
		"not migratable, vgpu":   {Text: "VMI uses a vGPU that cannot be migrated", Source: "condition LiveMigratable"},
		"storage not migratable": {Text: "cannot migrate VMI: mediated device is not supported", Source: "condition StorageLiveMigratable"},
		"one variable":           {Text: "PCI_RESOURCE_NVIDIA_COM_GPU not set for resource nvidia.com/gpu"},
		"other variable":         {Text: "MDEV_PCI_RESOURCE_NVIDIA_COM_GPU not set for resource nvidia.com/gpu"},
		"created":                {Text: "host-devices created: [type: hostdev, name: ua-gpu-gpu1]"},
		"data volumes":           {Text: "Not all of the VMI's DVs are ready"},
		"volume":                 {Text: "Multi-Attach error for volume \"pvc-1\" Volume is already used by pod(s) virt-launcher-a-b"},
		"volume in use":          {Text: "volume is already in use by node worker-2"},
		"mount":                  {Text: "MountVolume.SetUp failed for volume \"disk\" : open /var/lib/x: no such file or directory"},
		"port":                   {Text: "listen tcp :5900: bind: address already in use by another process"},
		"disk":                   {Text: "device not found: no target device vda"},
		"disk gone":              {Text: "failed to open /dev/vda: No such device"},
		"no domain yet":          {Text: "virError(Code=42, Domain=10, Message='Domain not found: no domain with matching name 'tenant-a_trainer'')"},
		"guest agent":            {Text: "LibvirtError(Code=86, Domain=10, Message='Guest agent is not responding: QEMU guest agent is not connected')"},
		"connection":             {Text: "read tcp: connection reset by peer"},
		"probe":                  {Text: "Readiness probe failed: cannot reset the counter"},
		"a taken image":          {Text: "Back-off pulling image \"quay.io/kubevirt/virt-launcher:v1.9.0\""},
		"evicted":                {Text: "The node was low on resource: memory."},
		"plugin's device":        {Text: "Nvidia device  0000:41:00.0"},
		"plugin's groups":        {Text: "Iommu Map map[1:[{0000:41:00.0}]]"},
		"plugin's name":          {Text: "DP Name GH100_H200_SXM_141GB"},
		"plugin's registering":   {Text: "Registering device: ID=0000:41:00.0, NUMA=0, Health=Healthy"},
		"plugin's list":          {Text: "[GH100_H200_SXM_141GB] ListAndWatch called, sending 8 devices:"},
		"plugin's registered":    {Text: "[GH100_H200_SXM_141GB] Successfully registered with kubelet for resource: nvidia.com/GH100_H200_SXM_141GB (endpoint: kubevirt-GH100_H200_SXM_141GB.sock)"},
		"plugin's ready":         {Text: "GH100_H200_SXM_141GB Device plugin server ready"},
		"plugin's allocation":    {Text: "[A10] Allocated devices - Envs: map[PCI_RESOURCE_NVIDIA_COM_GA102GL_A10:0000:41:00.0], DeviceSpecs count: 2"},
		"binding":                {Text: "Binding device 0000:41:00.0 to driver: vfio-pci"},
		"empty":                  {},
	}
	for name, m := range tests {
		t.Run(name, func(t *testing.T) {
			if got := codesOf(read(&m)); len(got) > 0 {
				t.Errorf("read(%q) = %v, want none", m.Text, got)
			}
		})
	}
}

// TestInsufficientName takes the GPU's name out of what the scheduler lacks.
func TestInsufficientName(t *testing.T) {
	said := read(&Message{Text: "0/3 nodes are available: 1 Insufficient intel.com/qat, 2 Insufficient nvidia.com/GA102GL_A10."})
	if len(said) != 1 || said[0].name != "nvidia.com/GA102GL_A10" {
		t.Errorf("read() = %+v, want the name of the A10", said)
	}
}

// TestOthersMachines diagnoses trouble of machines without GPUs: none of it is a
// finding of the cluster.
func TestOthersMachines(t *testing.T) {
	for name, text := range map[string]string{
		"quota":         "Error creating pod: pods \"virt-launcher-web-x\" is forbidden: exceeded quota: cpu",
		"webhook":       "admission webhook \"policy.example.com\" denied the request: no",
		"domain":        fromLibvirt("unsupported configuration: hyperv is not supported"),
		"locked memory": fromLibvirt("cannot limit locked memory of process 87 to 34359738368: Operation not permitted"),
		"kvm":           "Pod was rejected: Allocate failed due to requested number of devices unavailable for devices.kubevirt.io/kvm. Requested: 1, Available: 0, which is unexpected",
		"no memory":     "0/3 nodes are available: 3 Insufficient memory.",
	} {
		t.Run(name, func(t *testing.T) {
			web := Ref{"VirtualMachine", "tenant", "web"}
			e := Evidence{VMs: []VM{{Ref: web, Status: "Starting"}}, Messages: []Message{{About: web, Text: text}}}
			if r, _ := Diagnose(&e, Subject{}); len(r.Findings) > 0 {
				t.Errorf("findings %v, want none", r.Findings)
			}
			e.VMs[0].Devices = []gpu.Device{{Field: "gpus", Name: "nvidia.com/GA102GL_A10"}}
			if r, _ := Diagnose(&e, Subject{}); len(r.Findings) == 0 {
				t.Error("no finding although the machine has a GPU")
			}
		})
	}
}

// TestGhosts has messages about machines that are not among the evidence: they are
// looked into, unless all machines are, so that this one is gone.
func TestGhosts(t *testing.T) {
	for name, tt := range map[string]struct {
		about Ref
		text  string
		want  []Code
	}{
		"not permitted": {Ref{"VirtualMachineInstance", "t", "ghost"}, "GPU " + string(a10) + " is not permitted in permittedHostDevices configuration", []Code{"GPU0302"}},
		"domain":        {Ref{"VirtualMachineInstance", "t", "ghost"}, refused("vfio 0000:41:00.0: group 7 is not viable"), []Code{"GPU0520"}},
		"other domain":  {Ref{"VirtualMachineInstance", "t", "ghost"}, fromLibvirt("hyperv is not supported"), nil},
		"short of GPUs": {Ref{"Pod", "t", "virt-launcher-ghost-abcde"}, "0/2 nodes are available: 2 Insufficient " + string(a10) + ".", []Code{"GPU0507"}},
		"short of NICs": {Ref{"Pod", "t", "virt-launcher-ghost-abcde"}, "0/2 nodes are available: 2 Insufficient openshift.io/sriov.", nil},
		"short of CPUs": {Ref{"Pod", "t", "virt-launcher-ghost-abcde"}, "0/2 nodes are available: 2 Insufficient cpu.", nil},
		"another pod":   {Ref{"Pod", "t", "web-abcde"}, "0/2 nodes are available: 2 Insufficient " + string(a10) + ".", nil},
	} {
		t.Run(name, func(t *testing.T) {
			e := Evidence{Messages: []Message{{About: tt.about, Text: tt.text}}}
			r, _ := Diagnose(&e, Subject{})
			var got []Code
			for _, f := range r.Findings {
				got = append(got, f.Code)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLogLines reads logs line by line.
func TestLogLines(t *testing.T) {
	tests := map[string]struct {
		lines string
		want  []Code
	}{
		"skipped":           {"Skipping 0000:41:00.0: driver nvidia is not a supported VFIO driver", []Code{"GPU0417"}},
		"no driver":         {"Could not get driver for device  0000:41:00.0", []Code{"GPU0417"}},
		"no group":          {"Could not get IOMMU Group for device  0000:41:00.0", []Code{"GPU0417"}},
		"vgpu type":         {"Could not get vGPU type identifier for device  7ece9ff1-b292-474e-aaf4-58e863ae2053", []Code{"GPU0417"}},
		"no mdevs":          {`Error accessing file path "/sys/bus/mdev/devices": lstat /sys/bus/mdev/devices: no such file or directory`, nil},
		"no bus":            {`Error accessing file path "/sys/bus/pci/devices": lstat /sys/bus/pci/devices: no such file or directory`, []Code{"GPU0417"}},
		"bare id":           {"Error: Could not find device name for device id: 2335", []Code{"GPU0417"}},
		"no pci.ids":        {"Error opening pci ids file /usr/pci.ids", []Code{"GPU0417"}},
		"not registered":    {`[X_] Error registering with device plugin manager: rpc error: code = Unknown desc = the ResourceName "nvidia.com/X_" is invalid`, []Code{"GPU0417"}},
		"not started":       {"Error starting GA102GL_A10 device plugin: listen unix: bind", []Code{"GPU0417"}},
		"unknown device":    {"invalid allocation request: unknown device: 0000:41:00.0", []Code{"GPU0417"}},
		"group changed":     {"IommuGroup has changed on the system  0000:41:00.0", []Code{"GPU0417"}},
		"iommufd":           {"could not determine iommufd device for device 0000:41:00.0: no iommufd device found", []Code{"GPU0417"}},
		"unhealthy":         {"GA102GL_A10: Marking device unhealthy: 0000:41:00.0", []Code{"GPU0417"}},
		"no restart":        {"GA102GL_A10: Unable to restart server listen unix: bind", []Code{"GPU0417"}},
		"in-tree group":     {`{"level":"error","msg":"failed to read iommu_group link /sys/bus/pci/devices/0000:41:00.0/iommu_group for device 0000:41:00.0"}`, []Code{"GPU0417"}},
		"in-tree vanished":  {`{"level":"info","msg":"monitored device /dev/vfio/12 disappeared"}`, []Code{"GPU0417"}},
		"kvm vanished":      {`{"level":"info","msg":"monitored device /dev/kvm disappeared"}`, nil},
		"pre-installed":     {`time="2026-01-02T03:04:05Z" level=error msg="driver is pre-installed on host"`, []Code{"GPU0218"}},
		"in use":            {"Could not unload NVIDIA driver kernel modules, driver is in use", []Code{"GPU0218"}},
		"not bound":         {"Failed to bind device 0000:41:00.0: failed to unbind 0000:41:00.0 from nvidia: device or resource busy", []Code{"GPU0218"}},
		"no module":         {"failed to find directory for vfio driver vfio-pci at /sys/bus/pci/drivers/vfio-pci, is the module loaded?", []Code{"GPU0218"}},
		"not loaded":        {`failed to load "vfio-pci" driver: exit status 1`, []Code{"GPU0218"}},
		"audio":             {"failed to bind graphics auxiliary device 0000:41:00.1 to vfio-pci: no", []Code{"GPU0218"}},
		"validator":         {"device not bound to 'vfio-pci'; device: 0000:41:00.0 driver: 'nvidia'", []Code{"GPU0218"}},
		"binding":           {"Binding device 0000:41:00.0 to driver: vfio-pci", nil},
		"graphics":          {"gpu 0000:41:00.0 is in graphics mode aux_dev 0000:41:00.1", nil},
		"healthy plugin":    {"Nvidia device  0000:41:00.0\nIommu Map map[1:[]]\nDevice Map map[2335:[]]\nDP Name GH100\nRegistering device: ID=0000:41:00.0, NUMA=0, Health=Healthy\nGH100 Device plugin server ready\nIn watch unhealthy\nGH100: Socket path for GPU device was removed, kubelet likely restarted", nil},
		"one variable":      {"PCI_RESOURCE_X not set for resource nvidia.com/x", nil},
		"the same one":      {"PCI_RESOURCE_X not set for resource nvidia.com/x\nPCI_RESOURCE_X not set for resource nvidia.com/x", nil},
		"both variables":    {"PCI_RESOURCE_X not set for resource nvidia.com/x\nMDEV_PCI_RESOURCE_X not set for resource nvidia.com/x", []Code{"GPU0524"}},
		"of two names":      {"PCI_RESOURCE_X not set for resource nvidia.com/x\nMDEV_PCI_RESOURCE_Y not set for resource nvidia.com/y", nil},
		"launcher's reason": {`{"level":"error","msg":"Failed to sync vmi","reason":"no more addresses to allocate for resource nvidia.com/x"}`, []Code{"GPU0524"}},
		"launcher's start":  {`{"level":"info","msg":"Domain not found","reason":"virError(Code=42, Domain=10, Message='Domain not found: no domain with matching name')"}`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := Evidence{Logs: []Log{{Name: "x.log", Lines: strings.Split(tt.lines, "\n")}}}
			r, _ := Diagnose(&e, Subject{})
			var got []Code
			for _, f := range r.Findings {
				got = append(got, f.Code)
				if strings.Contains(f.Message+f.Hint, "{") && !strings.Contains(tt.lines, "{") {
					t.Errorf("a placeholder is left: %s %s", f.Message, f.Hint)
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
