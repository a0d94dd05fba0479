package arch

import (
	"io/fs"
	"os"
	"strings"
	"testing"
	"testing/fstest"
)

func TestModule(t *testing.T) {
	files := load(t, os.DirFS("../.."))
	if len(files) == 0 {
		t.Fatal("found no Go files")
	}
	for _, breach := range check(files) {
		t.Error(breach)
	}
}

// TestLinterKnowsTechnologies keeps the linter's table, which speaks up while
// one types, from falling behind this one.
func TestLinterKnowsTechnologies(t *testing.T) {
	settings, err := fs.ReadFile(os.DirFS("../.."), ".golangci.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, tech := range technologies {
		if !strings.Contains(string(settings), "pkg: "+tech.prefix+",") {
			t.Errorf(".golangci.yml has no depguard rule for %s", tech.prefix)
		}
	}
}

// TestTable finds rows that name packages which no row describes.
func TestTable(t *testing.T) {
	for _, l := range layers {
		if l.sentence == "" {
			t.Errorf("%s has no sentence", l.pkg)
		}
		for pkg := range l.imports() {
			if _, ok := layerOf(pkg); !ok {
				t.Errorf("%s may import %s, which is not in the table", l.pkg, pkg)
			}
		}
	}
}

func TestCheck(t *testing.T) {
	long := "package x\n" + strings.Repeat("// .\n", maxLines)
	for name, tc := range map[string]struct {
		file, text string
		want       string // what the only breach says; "" for none
	}{
		"allowed arrow":             {file: "internal/tenant/a.go", text: ours("tenant", "internal/gpu")},
		"arrow against the grain":   {file: "internal/gpu/a.go", text: ours("gpu", "internal/tenant"), want: "internal/gpu may not import internal/tenant"},
		"all pure":                  {file: "internal/render/a.go", text: ours("render", "internal/alloc")},
		"all pure is not all":       {file: "internal/render/a.go", text: ours("render", "internal/cluster"), want: "may not import internal/cluster"},
		"everything":                {file: "internal/cli/a.go", text: ours("cli", "internal/cluster")},
		"everything has no tests":   {file: "internal/cli/a.go", text: ours("cli", "test/fakesys"), want: "may not import test/fakesys"},
		"everything has no main":    {file: "internal/cli/a.go", text: ours("cli", "cmd/gpuctl"), want: "may not import cmd/gpuctl"},
		"test file may import":      {file: "internal/gpu/a_test.go", text: ours("gpu", "test/fakesys")},
		"package not in the table":  {file: "internal/stray/a.go", text: "package stray", want: "not in the table"},
		"nested module has its own": {file: "tools/gen/a.go", text: ours("gen", "internal/gpu")},
		"shapeless name":            {file: "tools/util/a.go", text: "package util", want: `package name "util"`},

		"technology at home":       {file: "internal/discover/a.go", text: imports("discover", "github.com/jaypipes/ghw/pkg/pci")},
		"technology astray":        {file: "internal/cluster/a.go", text: imports("cluster", "helm.sh/helm/v3/pkg/action"), want: "only internal/release"},
		"versioned technology":     {file: "internal/cli/a.go", text: imports("cli", "gopkg.in/yaml.v3"), want: "only internal/manifest"},
		"name that only starts so": {file: "internal/cli/a.go", text: imports("cli", "github.com/spf13/cobrax")},
		"Kubernetes in pure":       {file: "internal/alloc/a.go", text: imports("alloc", "k8s.io/api/core/v1"), want: "may not import k8s.io/api"},
		"apimachinery in api":      {file: "api/v1alpha1/a.go", text: imports("v1alpha1", "k8s.io/apimachinery/pkg/runtime")},
		"client in api":            {file: "api/v1alpha1/a.go", text: imports("v1alpha1", "k8s.io/client-go/rest"), want: "may not import k8s.io/client-go"},
		"assertions in a test":     {file: "internal/cli/a_test.go", text: imports("cli", "github.com/stretchr/testify/require"), want: "assertion library"},
		"assertions in a tool":     {file: "tools/gen/a_test.go", text: imports("gen", "github.com/onsi/gomega"), want: "assertion library"},

		"files in pure":         {file: "internal/gpu/a.go", text: imports("gpu", "os"), want: "may not use os"},
		"processes in pure":     {file: "internal/gpu/a.go", text: imports("gpu", "os/exec"), want: "may not use os"},
		"network in pure":       {file: "internal/gpu/a.go", text: imports("gpu", "net/http"), want: "may not use net"},
		"addresses in pure":     {file: "internal/gpu/a.go", text: imports("gpu", "net/netip")},
		"files elsewhere":       {file: "internal/discover/a.go", text: imports("discover", "os")},
		"files in a pure test":  {file: "internal/gpu/a_test.go", text: imports("gpu", "os")},
		"clock in pure":         {file: "internal/usage/a.go", text: "package usage\nimport \"time\"\nvar now = time.Now", want: "may not use time.Now"},
		"clock by another name": {file: "internal/usage/a.go", text: "package usage\nimport t \"time\"\nvar now = t.Since", want: "may not use time.Since"},
		"durations in pure":     {file: "internal/usage/a.go", text: "package usage\nimport \"time\"\nvar second = time.Second"},
		"a method of that name": {file: "internal/usage/a.go", text: "package usage\nvar clock struct{ Now int }\nvar now = clock.Now"},

		"init":               {file: "internal/cli/a.go", text: "package cli\nfunc init() {}", want: "has an init function"},
		"method called init": {file: "internal/cli/a.go", text: "package cli\ntype a int\nfunc (a) init() {}"},
		"long file":          {file: "internal/cli/a.go", text: long, want: "401 lines; the limit is 400"},
		"long in a tool":     {file: "tools/gen/a.go", text: long, want: "401 lines"},
		"long test":          {file: "internal/cli/a_test.go", text: long},
		"long and generated": {file: "internal/cli/a.go", text: "// Code generated by x. DO NOT EDIT.\n" + long},
		"long main":          {file: "cmd/gpuctl/main.go", text: "package main\n" + strings.Repeat("\n", maxMainLines), want: "31 lines; the limit is 30"},
		"other main":         {file: "tools/gen/main.go", text: "package main\n" + strings.Repeat("\n", maxMainLines)},
		"left out":           {file: "internal/gpu/testdata/a.go", text: "no Go at all"},
	} {
		t.Run(name, func(t *testing.T) {
			root := fstest.MapFS{
				"go.mod":       {},
				"tools/go.mod": {},
				tc.file:        {Data: []byte(tc.text)},
			}
			got := check(load(t, root))
			switch {
			case tc.want == "" && len(got) == 0:
			case tc.want != "" && len(got) == 1 && strings.Contains(got[0], tc.want):
			default:
				t.Errorf("breaches %q, want %q", got, tc.want)
			}
		})
	}
}

// ours returns a file that imports one package of this module.
func ours(pkg, imp string) string { return imports(pkg, module+"/"+imp) }

// imports returns a file that imports one package.
func imports(pkg, imp string) string { return "package " + pkg + "\nimport _ \"" + imp + "\"\n" }
