package arch

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// check returns every breach of the rules, in the order of the files.
func check(files []source) []string {
	var breaches []string
	for _, f := range files {
		for _, rule := range []func(source) []string{
			assertionLibraries, fileSize, initializers, packageNames, arrows, otherModules, technologyOwners, purity,
		} {
			for _, breach := range rule(f) {
				breaches = append(breaches, f.name+": "+breach)
			}
		}
	}
	return breaches
}

func assertionLibraries(f source) (breaches []string) {
	for _, imp := range f.imports {
		for _, lib := range assertions {
			if within(imp, lib) {
				breaches = append(breaches, fmt.Sprintf("imports assertion library %s; compare with cmp.Diff", lib))
			}
		}
	}
	return breaches
}

func fileSize(f source) []string {
	limit := maxLines
	if strings.HasPrefix(f.name, "cmd/") && path.Base(f.name) == "main.go" {
		limit = maxMainLines
	}
	if f.test || f.generated || f.lines <= limit {
		return nil
	}
	return []string{fmt.Sprintf("has %d lines; the limit is %d", f.lines, limit)}
}

func initializers(f source) []string {
	if f.test || f.generated || !f.hasInit() {
		return nil
	}
	return []string{"has an init function; pass what it sets up"}
}

func packageNames(f source) []string {
	if !slices.Contains(shapeless, path.Base(f.pkg)) {
		return nil
	}
	return []string{fmt.Sprintf("package name %q says nothing about what is in it", path.Base(f.pkg))}
}

// arrows checks the imports between our packages. Tests may import what they
// like: only what ships has a direction.
func arrows(f source) (breaches []string) {
	if f.test || f.nested {
		return nil
	}
	l, ok := layerOf(f.pkg)
	if !ok {
		return []string{fmt.Sprintf("package %s is not in the table of layers", f.pkg)}
	}
	allowed := l.imports()
	for _, imp := range f.imports {
		if pkg, ours := strings.CutPrefix(imp, module+"/"); ours && !allowed[pkg] {
			breaches = append(breaches, fmt.Sprintf("%s may not import %s", f.pkg, pkg))
		}
	}
	return breaches
}

// otherModules checks the imports of packages that are closed to other modules.
func otherModules(f source) (breaches []string) {
	l, ok := layerOf(f.pkg)
	if f.test || !ok || l.others == "" {
		return nil
	}
	for _, imp := range f.imports {
		listed := slices.ContainsFunc(strings.Fields(l.others), func(m string) bool { return within(imp, m) })
		if !standard(imp) && !within(imp, module) && !listed {
			breaches = append(breaches, fmt.Sprintf("%s may not import %s", f.pkg, imp))
		}
	}
	return breaches
}

func technologyOwners(f source) (breaches []string) {
	if f.test || f.nested {
		return nil
	}
	for _, imp := range f.imports {
		for _, tech := range technologies {
			if within(imp, tech.prefix) && !slices.Contains(strings.Fields(tech.allowed), f.pkg) {
				breaches = append(breaches, fmt.Sprintf("only %s may import %s", tech.allowed, tech.prefix))
			}
		}
	}
	return breaches
}

func purity(f source) (breaches []string) {
	if l, _ := layerOf(f.pkg); !l.pure || f.test {
		return nil
	}
	uses := f.uses()
	for _, impure := range impurities {
		imported := slices.ContainsFunc(f.imports, func(imp string) bool {
			return within(imp, impure) && !slices.Contains(pureAfterAll, imp)
		})
		if imported || uses[impure] {
			breaches = append(breaches, fmt.Sprintf("%s is pure and may not use %s", f.pkg, impure))
		}
	}
	return breaches
}

// pureAfterAll are packages below an impure one that only compute.
var pureAfterAll = []string{"net/netip", "net/url"}

// layerOf returns the row of the table for a package.
func layerOf(pkg string) (layer, bool) {
	i := slices.IndexFunc(layers, func(l layer) bool { return l.pkg == pkg })
	if i < 0 {
		return layer{}, false
	}
	return layers[i], true
}

// within reports that an import path is prefix or lies below it; a version
// suffix as in "yaml.v3" counts as below.
func within(imp, prefix string) bool {
	rest, ok := strings.CutPrefix(imp, prefix)
	return ok && (rest == "" || rest[0] == '/' || rest[0] == '.')
}

// standard reports a package of the standard library.
func standard(imp string) bool {
	first, _, _ := strings.Cut(imp, "/")
	return !strings.Contains(first, ".")
}
