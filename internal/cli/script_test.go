package cli

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	main := func() { os.Exit(Main(os.Args[0], os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) }
	testscript.Main(m, map[string]func(){"gpuctl": main, plugin: main})
}

// TestScripts runs the stories in testdata/script: commands with their exact
// output. -update is not offered: a changed output is a changed promise.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{Dir: "testdata/script", Setup: packaging})
}

// packaging copies what releases ship to where the stories run. The test reads it
// itself, so that the test cache sees each change.
func packaging(env *testscript.Env) error {
	return os.CopyFS(filepath.Join(env.WorkDir, "packaging"), os.DirFS("../../packaging"))
}
