package arch

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"strconv"
	"strings"
	"testing"
)

// source is one Go file.
type source struct {
	name      string // its path in the module
	pkg       string // the path of its folder
	test      bool
	generated bool
	nested    bool // it belongs to another module below this one
	lines     int
	imports   []string
	tree      *ast.File
}

// load reads every Go file of a module, nested modules included. It reads them
// itself, whatever their build tags, so that the test cache sees each change.
func load(t *testing.T, root fs.FS) []source {
	t.Helper()
	var files []source
	nested := map[string]bool{}
	err := fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if name != "." && skipped(entry.Name()) {
				return fs.SkipDir
			}
			_, err := fs.Stat(root, path.Join(name, "go.mod"))
			nested[name] = nested[path.Dir(name)] || name != "." && err == nil
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		file, err := read(root, name)
		file.nested = nested[file.pkg]
		files = append(files, file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// skipped reports a folder that the go command skips as well, or that only
// holds what was built.
func skipped(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") ||
		folder == "testdata" || folder == "bin" || folder == "dist"
}

func read(root fs.FS, name string) (source, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return source{}, err
	}
	tree, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments)
	if err != nil {
		return source{}, err
	}
	file := source{
		name: name, pkg: path.Dir(name), tree: tree,
		test:      strings.HasSuffix(name, "_test.go"),
		generated: ast.IsGenerated(tree),
		lines:     bytes.Count(text, []byte("\n")),
	}
	for _, spec := range tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return source{}, err
		}
		file.imports = append(file.imports, p)
	}
	return file, nil
}

// uses returns the qualified names a file mentions, as "time.Now".
func (s source) uses() map[string]bool {
	local := map[string]string{}
	for _, spec := range s.tree.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		name := path.Base(p)
		if spec.Name != nil {
			name = spec.Name.Name
		}
		local[name] = p
	}
	found := map[string]bool{}
	ast.Inspect(s.tree, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && local[x.Name] != "" {
				found[local[x.Name]+"."+sel.Sel.Name] = true
			}
		}
		return true
	})
	return found
}

// hasInit reports a package initializer.
func (s source) hasInit() bool {
	for _, decl := range s.tree.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" {
			return true
		}
	}
	return false
}
