package cli

import (
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/term"

	"github.com/gpuctl/gpuctl/internal/render"
)

// printer returns a printer on stdout; commentary returns one on stderr.
func (s *streams) printer() *render.Printer    { return render.New(s.out, s.look(s.out)) }
func (s *streams) commentary() *render.Printer { return render.New(s.err, s.look(s.err)) }

// look says what a stream can show: a pipe gets plain text of any width.
func (s *streams) look(w io.Writer) render.Look {
	if !terminal(w) {
		return render.Look{Program: s.program}
	}
	return render.Look{Program: s.program, Colour: os.Getenv("NO_COLOR") == "", Symbols: utf8Locale(), Width: width(w)}
}

// terminal reports whether w is a terminal that can do more than print lines.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && os.Getenv("TERM") != "dumb" && term.IsTerminal(int(f.Fd()))
}

// width returns the columns of a terminal; COLUMNS overrules what it says.
func width(w io.Writer) int {
	if n, err := strconv.Atoi(os.Getenv("COLUMNS")); err == nil && n > 0 {
		return n
	}
	if f, ok := w.(*os.File); ok {
		if columns, _, err := term.GetSize(int(f.Fd())); err == nil && columns > 0 {
			return columns
		}
	}
	return 80
}

// utf8Locale reports whether the terminal shows more than ASCII, as the locale says.
// Without any locale it is taken to.
func utf8Locale() bool {
	for _, key := range []string{"LC_ALL", "LC_CTYPE", "LANG"} {
		if v := strings.ToLower(os.Getenv(key)); v != "" {
			return strings.Contains(v, "utf-8") || strings.Contains(v, "utf8")
		}
	}
	return true
}
