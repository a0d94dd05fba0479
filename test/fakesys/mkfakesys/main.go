// Command mkfakesys builds a fake machine's tree, to try lspci and gpuctl on
// by hand and to measure them:
//
//	go run ./test/fakesys/mkfakesys -functions 256 -gpus 8 DIR
//	go run ./test/fakesys/mkfakesys -layout FILE.tsv DIR
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"

	"github.com/gpuctl/gpuctl/test/fakesys"
)

func main() {
	layout := flag.String("layout", "", "build the machine of this layout table")
	functions := flag.Int("functions", 256, "functions of the machine without -layout")
	gpus := flag.Int("gpus", 8, "GPUs among them")
	vfs := flag.Bool("vfs", false, "build GPUs with 32 mdev VFs each instead")
	flag.Parse()
	if err := run(*layout, *functions, *gpus, *vfs, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "mkfakesys:", err)
		os.Exit(1)
	}
}

func run(layout string, functions, gpus int, vfs bool, args []string) error {
	if len(args) != 1 {
		return errors.New("want exactly one directory")
	}
	m := fakesys.Machine{Host: fakesys.Dense(functions, gpus)}
	if vfs {
		m.Host = fakesys.DenseVFs(gpus)
	}
	if layout != "" {
		text, err := os.ReadFile(layout)
		if err != nil {
			return err
		}
		if m, err = fakesys.ParseLayout(string(text)); err != nil {
			return fmt.Errorf("%s: %w", layout, err)
		}
	}
	return m.Build(args[0])
}
