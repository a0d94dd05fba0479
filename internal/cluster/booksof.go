package cluster

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/books"
	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
	"github.com/gpuctl/gpuctl/internal/patch"
	"github.com/gpuctl/gpuctl/internal/tenant"
	"github.com/gpuctl/gpuctl/internal/usage"
)

// everybody are the tenants where no settings say who is one: the chart's default.
const everybody = "kubernetes.io/metadata.name notin (kube-system,kube-public,kube-node-lease)"

// BooksOf fills books from documents, as a Feed does from a cluster. agents say which
// nodes' agents report; nil is for all. hnc says that HNC is installed; where one of its
// objects is among the documents it is, too. Devices, VMIs and pods are told apart by
// namespace and name, as "tenant-acme/train-a": a bundle has no UIDs. Objects that cannot
// be read count as a Feed has it.
func BooksOf(docs []manifest.Document, agents []diagnose.Agent, hnc bool) *books.Books {
	f := filling{books: books.New(), nodes: newNodes(), tree: newTree(), table: targets{}, settings: map[string]string{}, vmis: map[string]usage.VMI{}}
	f.tree.hnc = hnc
	for i := range docs {
		f.read(&docs[i])
	}
	f.finish(agents)
	return f.books
}

// filling are books in the making.
type filling struct {
	books    *books.Books
	nodes    nodes
	tree     tree
	table    targets
	claims   []usage.DeviceClass
	settings map[string]string // of ConfigMap gpuctl-settings
	pods     []corev1.Pod
	vmis     map[string]usage.VMI // by namespace and name
	alike    pool
}

func (f *filling) read(d *manifest.Document) {
	name := d.Meta("name")
	switch group(d) + "/" + d.Kind() {
	case "/Node":
		facts, err := factsOf(d)
		k := f.nodes.at(name)
		k.facts, k.doubt = facts, err != nil
	case v1alpha1.GroupName + "/GPUNode":
		host, err := f.alike.hostOf(d)
		k := f.nodes.at(name)
		k.host, k.opaque = host, err != nil
	case "kubevirt.io/KubeVirt", "hco.kubevirt.io/HyperConverged":
		f.table[d.Ref()] = *d
	case "/Pod":
		var pod corev1.Pod
		if typed(d, &pod) == nil {
			f.pods = append(f.pods, pod)
		}
	case "apps/DaemonSet":
		var set appsv1.DaemonSet
		if typed(d, &set) == nil && slices.ContainsFunc(set.Spec.Template.Spec.Containers, func(c corev1.Container) bool { _, ok := releaseOf(c.Image); return ok }) {
			f.nodes.sets[owned{set.Namespace, set.UID}] = true
		}
	case "kubevirt.io/VirtualMachineInstance":
		v, _ := vmiOf(d)
		v.UID = v.Namespace + "/" + v.Name
		f.vmis[v.UID] = v
	case "resource.k8s.io/DeviceClass":
		f.claims = append(f.claims, claimOf(d))
	default:
		f.readOrder(d)
	}
}

// readOrder reads what orders are made of, and who may make them.
func (f *filling) readOrder(d *manifest.Document) {
	meta := &unstructured.Unstructured{Object: d.Object}
	switch group(d) + "/" + d.Kind() {
	case v1alpha1.GroupName + "/GPUClass":
		var class v1alpha1.GPUClass
		if typed(d, &class) == nil {
			f.books.PutClass(classOf(&class))
		}
	case v1alpha1.GroupName + "/GPUDevice":
		var device v1alpha1.GPUDevice
		if typed(d, &device) == nil && counts(&device) {
			f.device(&device)
		}
	case "/ConfigMap":
		if d.Meta("name") == v1alpha1.SettingsName {
			for _, key := range []string{v1alpha1.SettingTenants, v1alpha1.SettingProvider, v1alpha1.SettingResourceNames} {
				f.settings[key] = text(d.Object, "data", key)
			}
		}
	case "/Namespace":
		f.tree.namespaces[meta.GetName()] = namespaceOf(meta)
	case "/ResourceQuota":
		var quota corev1.ResourceQuota
		if typed(d, &quota) == nil {
			f.tree.quotas[nameOf(meta)] = quotaOf(&quota)
		}
	case "hnc.x-k8s.io/HierarchyConfiguration":
		halted, _ := haltedBy(d)
		f.tree.hnc, f.tree.halted[meta.GetNamespace()] = true, halted
	case "helm.toolkit.fluxcd.io/HelmRelease":
		if strings.HasPrefix(meta.GetName(), tenantRelease) {
			f.tree.releases[nameOf(meta)] = releaseFrom(d)
		}
	}
}

func (f *filling) device(d *v1alpha1.GPUDevice) {
	now := DeviceOf(d)
	now.UID = d.Namespace + "/" + d.Name
	if now.VMI != "" {
		now.VMI = d.Namespace + "/" + d.Status.Attachment.VMIName
	}
	f.books.PutDevice(now)
}

// finish puts into the books what follows from several objects.
func (f *filling) finish(agents []diagnose.Agent) {
	alive := map[string]bool{}
	for name := range f.nodes.by {
		alive[name] = agents == nil
	}
	for _, a := range agents {
		alive[a.Node] = a.Reports
	}
	f.nodes.alive = alive
	f.putPods()
	for name := range f.nodes.by {
		if now := f.nodes.of(name); now != nil {
			f.books.PutNode(*now)
		}
	}
	listed, _ := v1alpha1.DecodeResourceNames(f.settings)
	var names []gpu.ResourceName
	for _, name := range listed {
		names = append(names, gpu.ResourceName(name))
	}
	f.books.SetNames(names, f.claims)
	if target, err := patch.Choose(slices.Collect(maps.Values(f.table))); err == nil {
		if table, err := patch.TableOf(&target, target.Object); err == nil {
			f.books.SetTable(table)
		}
	}
	namespaces, provider := f.tree.input(f.settings[v1alpha1.SettingProvider] == "cozystack")
	tenants := tenantsOf(f.settings[v1alpha1.SettingTenants])
	f.books.SetTree(tenant.Build(namespaces, provider, func(n tenant.Namespace) bool { return tenants.Matches(labels.Set(n.Labels)) }))
}

// TenantLabels returns the keys of the labels by which documents say that tenants are
// selected.
func TenantLabels(docs []manifest.Document) map[string]bool {
	out := map[string]bool{}
	for i := range docs {
		d := &docs[i]
		if group(d)+"/"+d.Kind() != "/ConfigMap" || d.Meta("name") != v1alpha1.SettingsName {
			continue
		}
		requirements, _ := tenantsOf(text(d.Object, "data", v1alpha1.SettingTenants)).Requirements()
		for i := range requirements {
			out[requirements[i].Key()] = true
		}
	}
	return out
}

// tenantsOf reads the selector of tenants' namespaces.
func tenantsOf(selector string) labels.Selector {
	if selector == "" {
		selector = everybody
	}
	tenants, err := labels.Parse(selector)
	if err != nil {
		return labels.Nothing()
	}
	return tenants
}

// putPods puts pods and VMIs into the books. A VMI lists its launchers by UID; where a
// pod's is not known, which is so in a bundle, who controls it counts instead.
func (f *filling) putPods() {
	listing := map[string][]string{} // VMIs by the UIDs of the pods that they list
	for key, v := range f.vmis {
		for uid := range v.ActivePods {
			listing[v.Namespace+"/"+uid] = append(listing[v.Namespace+"/"+uid], key)
		}
		v.ActivePods = map[string]string{}
		f.vmis[key] = v
	}
	for i := range f.pods {
		pod := &f.pods[i]
		key := pod.Namespace + "/" + pod.Name
		if node, p, ok := pluginOf(pod); ok {
			p.pod = types.UID(key)
			f.nodes.hasPlugin(node, p)
		}
		launches := listing[pod.Namespace+"/"+string(pod.UID)]
		if unknownUID(pod) {
			launches = []string{launchedBy(pod)}
		}
		for _, vmi := range launches {
			if v, ok := f.vmis[vmi]; ok {
				v.ActivePods[key] = pod.Spec.NodeName
			}
		}
		if p, ok := PodOf(pod); ok {
			p.UID = key
			f.books.PutPod(p)
		}
	}
	for _, v := range f.vmis {
		f.books.PutVMI(v)
	}
}

func unknownUID(pod *corev1.Pod) bool { return pod.UID == "" || string(pod.UID) == hidden }

// launchedBy returns the namespace and the name of the VMI that controls a pod.
func launchedBy(pod *corev1.Pod) string {
	if owner := metav1.GetControllerOf(pod); owner != nil && owner.Kind == "VirtualMachineInstance" {
		return pod.Namespace + "/" + owner.Name
	}
	return ""
}
