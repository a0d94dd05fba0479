package discover

import (
	"fmt"
	"iter"
	"strings"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// File is pasted text with the name that errors call it by. Nil Data means that
// the file was not given; an empty file says something.
type File struct {
	Name string
	Data []byte
}

func (f File) given() bool { return f.Data != nil }

// Pasted is what people can tell of a machine without gpuctl on it.
type Pasted struct {
	Lspci File // lspci -nnk; see ParseLspci
	IOMMU File // optional; see ApplyIOMMU
	VF    File // optional; see ApplyVF, and GuessVFs without it
}

// FromText builds an inventory from pasted text. Warnings and errors name file
// and line.
func FromText(p Pasted) (gpu.Host, []string, error) {
	h, warnings, err := ParseLspci(p.Lspci.Data)
	warnings = prefixed(p.Lspci.Name, nil, warnings)
	if err != nil {
		return gpu.Host{}, warnings, fmt.Errorf("%s: %w", p.Lspci.Name, err)
	}
	if p.IOMMU.given() {
		more, err := ApplyIOMMU(&h, p.IOMMU.Data)
		warnings = prefixed(p.IOMMU.Name, warnings, more)
		if err != nil {
			return gpu.Host{}, warnings, fmt.Errorf("%s: %w", p.IOMMU.Name, err)
		}
	}
	if !p.VF.given() {
		GuessVFs(&h)
		return h, warnings, nil
	}
	more, err := ApplyVF(&h, p.VF.Data)
	warnings = prefixed(p.VF.Name, warnings, more)
	if err != nil {
		return gpu.Host{}, warnings, fmt.Errorf("%s: %w", p.VF.Name, err)
	}
	return h, warnings, nil
}

func prefixed(name string, warnings, more []string) []string {
	for _, w := range more {
		warnings = append(warnings, name+": "+w)
	}
	return warnings
}

// lines yields the lines of pasted text, numbered from 1, without line ends,
// e-mail quote marks and what web pages and Windows add.
func lines(text []byte) iter.Seq2[int, string] {
	return func(yield func(int, string) bool) {
		s := strings.TrimPrefix(string(text), "\ufeff")
		s = strings.ReplaceAll(s, "\u00a0", " ")
		n := 0
		for line := range strings.Lines(s) {
			n++
			if !yield(n, strings.TrimRight(unquote(line), " \t\r\n")) {
				return
			}
		}
	}
}

// unquote strips the "> " that mail and issue trackers put before quoted lines.
func unquote(line string) string {
	for strings.HasPrefix(line, ">") {
		line = strings.TrimPrefix(line[1:], " ")
	}
	return line
}

// cutBlank splits off the first word of a line.
func cutBlank(s string) (word, rest string) {
	s = strings.TrimLeft(s, " \t")
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, ""
	}
	return s[:i], strings.TrimLeft(s[i:], " \t")
}
