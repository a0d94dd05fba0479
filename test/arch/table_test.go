package arch

import "strings"

// module is the path of gpuctl's own module.
const module = "github.com/gpuctl/gpuctl"

// layer is one package: where it is, what it is in one sentence, and what it
// may import. What is not listed is not allowed.
type layer struct {
	pkg, sentence string
	// pure packages do no I/O and read no clock.
	pure bool
	// ours lists the packages of this module it may import. "pure" stands for
	// every pure package, "everything" for all but commands and test packages.
	ours string
	// others, unless empty, lists the only other modules it may import.
	others string
}

// layers is the layout of the module.
var layers = []layer{
	{pkg: "cmd/gpuctl", sentence: "main only", ours: "internal/cli", others: "none"},
	{pkg: "api/v1alpha1", sentence: "CRD types, contract keys, conditions", others: "k8s.io/apimachinery"},
	{pkg: "charts", sentence: "embeds the charts", others: "none"},

	{pkg: "internal/gpu", sentence: "vocabulary, naming rules", pure: true, others: "none"},
	{
		// Budgets are written as Kubernetes quantities, and read as it reads them.
		pkg: "internal/tenant", sentence: "tree, budgets, entitlements", pure: true,
		ours: "internal/gpu", others: "k8s.io/apimachinery/pkg/api/resource",
	},
	{pkg: "internal/usage", sentence: "who uses what; records folded from events", pure: true, ours: "internal/gpu", others: "none"},
	{
		pkg: "internal/alloc", sentence: "snapshot, decide, simulate, reasons", pure: true,
		ours: "internal/gpu internal/tenant internal/usage", others: "none",
	},
	{
		pkg: "internal/diagnose", sentence: "facts → findings; the code catalogue", pure: true,
		ours: "internal/gpu internal/tenant internal/usage internal/alloc", others: "none",
	},
	{
		pkg: "internal/books", sentence: "what is offered, ordered, held and used, kept up to date", pure: true,
		ours: "internal/gpu internal/tenant internal/usage internal/alloc internal/diagnose", others: "none",
	},

	{pkg: "internal/manifest", sentence: "objects as YAML text, edited without loss"},
	{pkg: "internal/discover", sentence: "this host → inventory", ours: "internal/gpu"},
	{pkg: "internal/cluster", sentence: "clients, caches, API ↔ pure conversion", ours: "api/v1alpha1 internal/manifest internal/patch pure"},
	{pkg: "internal/bundle", sentence: "evidence packed without secrets", ours: "api/v1alpha1 internal/cluster internal/manifest pure"},
	{
		pkg: "internal/patch", sentence: "plan (pure) + apply for KubeVirt and HCO",
		ours: "api/v1alpha1 internal/manifest internal/gpu internal/diagnose",
	},
	{pkg: "internal/agent", sentence: "one node's inventory → its GPUNode", ours: "api/v1alpha1 internal/cluster internal/gpu"},
	{pkg: "internal/wiring", sentence: "keeps the wiring true", ours: "api/v1alpha1 internal/cluster internal/manifest internal/patch pure"},
	{
		pkg: "internal/serve", sentence: "the controller's process",
		ours: "api/v1alpha1 internal/attach internal/bind internal/certs internal/cluster internal/config internal/patch internal/webhook internal/wiring pure",
	},
	{pkg: "internal/bind", sentence: "binder and reconcilers, thin", ours: "api/v1alpha1 internal/cluster internal/patch pure"},
	{pkg: "internal/attach", sentence: "devices taken for starts, claimed for VMIs, given back", ours: "api/v1alpha1 internal/cluster pure"},
	{pkg: "internal/certs", sentence: "the webhooks' certificates: made, trusted, served"},
	{pkg: "internal/webhook", sentence: "admission handlers, thin", ours: "api/v1alpha1 internal/attach internal/cluster pure"},
	{pkg: "internal/release", sentence: "Helm SDK", ours: "charts"},
	{pkg: "internal/render", sentence: "views → table/json/yaml", ours: "internal/manifest pure"},
	{pkg: "internal/config", sentence: "flags, environment and file → settings"},
	{pkg: "internal/cli", sentence: "one file per command", ours: "everything"},

	{
		pkg: "hack/gennames", sentence: "writes the table of names",
		ours: "internal/gpu", others: "github.com/NVIDIA/go-nvlib",
	},
	{pkg: "hack/gendocs", sentence: "writes the generated documentation", ours: "internal/cli internal/diagnose", others: "none"},

	{pkg: "test/api", sentence: "the kinds on a real API server", ours: "api/v1alpha1 charts test/cluster"},
	{pkg: "test/arch", sentence: "this test"},
	{pkg: "test/bench", sentence: "whole commands timed against others", ours: "internal/gpu test/fakesys"},
	{pkg: "test/bench/alloc", sentence: "placing timed with the predicate that places in earnest", ours: "internal/alloc internal/cluster internal/gpu"},
	{pkg: "test/bench/dra", sentence: "Kubernetes' DRA allocator, to compare alloc with"},
	{pkg: "test/bench/fleet", sentence: "made-up nodes of a large cluster", ours: "api/v1alpha1 internal/gpu"},
	{pkg: "test/bench/idle", sentence: "what the controller writes where nothing happens", ours: "api/v1alpha1 test/bench/fleet test/bench/process test/cluster"},
	{
		pkg: "test/bench/orders", sentence: "how fast orders are judged and get their units, and what their leader needs",
		ours: "api/v1alpha1 charts internal/bind internal/cluster internal/gpu test/bench/fleet test/bench/process test/cluster",
	},
	{pkg: "test/bench/process", sentence: "what a process has used"},
	{pkg: "test/bench/starts", sentence: "VMs with devices timed against VMs without gpuctl"},
	{pkg: "test/bench/status", sentence: "gpuctl status on a large cluster", ours: "internal/gpu test/bench/fleet test/cluster"},
	{pkg: "test/cluster", sentence: "control plane for tests"},
	{pkg: "test/cluster/up", sentence: "such a cluster for people", ours: "test/cluster"},
	{pkg: "test/demo", sentence: "the story of make demo", ours: "internal/cli internal/discover test/cluster test/fakesys"},
	{pkg: "test/e2e", sentence: "stories on a real control plane", ours: "everything test/cluster test/fakesys"},
	{pkg: "test/fakesys", sentence: "made-up sysfs trees, for tests only", ours: "internal/gpu"},
	{pkg: "test/often", sentence: "properties checked as often as there is time for", ours: ""},
	{pkg: "test/pause", sentence: "replicas stopped between a decision and its write", ours: "api/v1alpha1 charts test/cluster"},
	{pkg: "test/wire", sentence: "a connection to the API server that fails as a test says", others: "none"},
	{pkg: "test/kinds", sentence: "gpuctl's kinds in a cluster for tests", ours: "api/v1alpha1 charts internal/cluster test/cluster"},
	{pkg: "test/model/binding", sentence: "every run of the binding protocol in a small world", others: "none"},
	{pkg: "test/fakesys/mkfakesys", sentence: "writes such a tree to a folder", ours: "internal/gpu test/fakesys"},
}

// technologies says which packages import a third-party technology; tests may
// as well. A technology without packages is not to be imported by anyone.
var technologies = []struct{ prefix, allowed string }{
	{"github.com/NVIDIA/go-nvlib", "hack/gennames"},
	{"github.com/jaypipes/ghw", "internal/discover"},
	{"github.com/jaypipes/pcidb", "internal/discover"},
	{"github.com/charmbracelet/lipgloss", "internal/render"},
	{"github.com/aymanbagabas/go-udiff", "internal/render"},
	{"github.com/go-json-experiment/json", "internal/cluster"},
	{"helm.sh/helm", "internal/release"},
	{"k8s.io/cli-runtime/pkg/printers", "internal/render"},
	{"k8s.io/cli-runtime/pkg/resource", "internal/release"},
	{"github.com/virtual-kubelet/virtual-kubelet", "test/cluster"},
	{"github.com/spf13/viper", "internal/config"},
	{"github.com/spf13/cobra", "internal/cli"},
	{"github.com/prometheus/client_golang", "internal/wiring"},
	{"k8s.io/component-helpers", "internal/cluster"},
	{"k8s.io/dynamic-resource-allocation", "test/bench/dra"},
	{"sigs.k8s.io/controller-runtime", "internal/attach internal/bind internal/cluster internal/wiring internal/webhook internal/serve test/bench/orders test/kinds"},
	{"github.com/open-policy-agent/cert-controller", "internal/certs"},
	{"sigs.k8s.io/yaml", "internal/manifest"},
	{"go.yaml.in/yaml", "internal/manifest"},
	{"gopkg.in/yaml", "internal/manifest"},
}

// assertions are the libraries that no file may import, tests included.
var assertions = []string{
	"github.com/stretchr/testify",
	"github.com/onsi/gomega",
	"github.com/onsi/ginkgo",
	"gotest.tools/v3/assert",
}

// shapeless are names that say nothing about what is in a package.
var shapeless = []string{"util", "utils", "common", "helper", "helpers", "types", "misc", "shared"}

// impurities are packages of the standard library that do I/O or depend on the
// machine, and single functions of others that do.
var impurities = []string{
	"crypto/rand", "io/ioutil", "log", "net", "os", "path/filepath", "plugin", "syscall",
	"fmt.Print", "fmt.Printf", "fmt.Println", "fmt.Scan", "fmt.Scanf", "fmt.Scanln",
	"time.After", "time.AfterFunc", "time.NewTicker", "time.NewTimer", "time.Now", "time.Since", "time.Sleep", "time.Tick", "time.Until",
}

const (
	maxLines     = 400 // of a file that is neither generated nor a test
	maxMainLines = 30  // of a command's main.go
)

// imports returns the packages of ours that l may import.
func (l layer) imports() map[string]bool {
	allowed := map[string]bool{}
	for word := range strings.FieldsSeq(l.ours) {
		switch word {
		case "pure", "everything":
			for _, other := range layers {
				if other.pure || word == "everything" && !other.outermost() {
					allowed[other.pkg] = true
				}
			}
		default:
			allowed[word] = true
		}
	}
	return allowed
}

// outermost reports a package that none but tests may import.
func (l layer) outermost() bool {
	return strings.HasPrefix(l.pkg, "cmd/") || strings.HasPrefix(l.pkg, "test/")
}
