package cluster

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// source is a tool module below this package: what is built from it and how.
type source struct {
	name     string   // of its folder
	release  string   // the module whose version is that of what is built
	packages []string // of the commands
	// stamped are the packages whose version variables are set; without them
	// the programs say v0.0.0, which clients take for a very old release.
	stamped []string
	rename  map[string]string // of binaries that are named after a folder
	// generate is a binary that prints a document, kept next to the binaries.
	generate, document string
}

func sources() []source {
	return []source{
		{
			name:    "controlplane",
			release: "k8s.io/kubernetes",
			packages: []string{
				"go.etcd.io/etcd/server/v3",
				"k8s.io/kubernetes/cmd/kube-apiserver",
				"k8s.io/kubernetes/cmd/kube-controller-manager",
				"k8s.io/kubernetes/cmd/kube-scheduler",
				"k8s.io/kubernetes/cmd/kubectl",
			},
			stamped: []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"},
			rename:  map[string]string{"server": Etcd},
		},
		{
			name:    "kubevirt",
			release: "kubevirt.io/kubevirt",
			packages: []string{
				"kubevirt.io/kubevirt/cmd/virt-api",
				"kubevirt.io/kubevirt/cmd/virt-controller",
				"kubevirt.io/kubevirt/cmd/virt-operator",
				"./manifests",
			},
			stamped:  []string{"kubevirt.io/client-go/version"},
			generate: "manifests", document: "manifests.json",
		},
	}
}

// Build flags: those of the Makefile, so that packages are compiled once.
const (
	goFlags    = "-trimpath -buildvcs=false"
	cgoEnabled = "0"
	linkFlags  = "-s -w"
)

const modulePath = "github.com/gpuctl/gpuctl"

// sourceDir returns the folder of the tool modules: that of this package in the
// checkout around the working directory, which is where go test and go run put
// their programs. (Paths in the binary are trimmed, and go:embed stops at nested
// modules.)
func sourceDir() (string, error) {
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := wd; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && strings.HasPrefix(string(data), "module "+modulePath+"\n") {
			return filepath.Join(dir, "test", "cluster"), nil
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return "", err
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("find the checkout of %s: %q is not in one", modulePath, wd)
		}
	}
}

// key names one build of the module in dir: it changes with every file of the
// module, the flags and the toolchain.
func (s source) key(dir, toolchain string) (string, error) {
	h := sha256.New()
	fmt.Fprintf(h, "%s %s CGO_ENABLED=%s %s %q %q %s\n", toolchain, goFlags, cgoEnabled, linkFlags, s.packages, s.stamped, s.generate)
	// In lexical order, so that the key does not depend on the file system.
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		fmt.Fprintf(h, "%s %d\n%s", filepath.ToSlash(rel), len(data), data)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hash the files in %s: %w", dir, err)
	}
	return s.name + "-" + hex.EncodeToString(h.Sum(nil))[:16], nil
}

// linkerFlags stamps a version such as "v1.37.2".
func (s source) linkerFlags(version string) string {
	flags := []string{linkFlags}
	major, rest, _ := strings.Cut(strings.TrimPrefix(version, "v"), ".")
	minor, _, _ := strings.Cut(rest, ".")
	for _, pkg := range s.stamped {
		for _, v := range []string{"gitVersion=" + version, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean"} {
			flags = append(flags, "-X", pkg+"."+v)
		}
	}
	return strings.Join(flags, " ")
}
