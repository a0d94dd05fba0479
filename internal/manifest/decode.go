package manifest

import (
	"bytes"
	"errors"
	"io"
	"strconv"
	"strings"
	"unicode"

	yamlv3 "go.yaml.in/yaml/v3"
	"sigs.k8s.io/yaml"
)

// decode returns the root nodes of a chunk's YAML documents, without empty ones.
// Its errors name the line in the file.
func decode(c chunk) ([]*node, error) {
	var roots []*node
	dec := yamlv3.NewDecoder(bytes.NewReader(c.text))
	for {
		var doc node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return roots, nil
		}
		if err != nil {
			return nil, syntaxError(c, err)
		}
		if len(doc.Content) > 0 {
			roots = append(roots, doc.Content[0])
		}
	}
}

// syntaxError says where a chunk is no YAML. Both YAML libraries name a line, by
// rules of their own: yaml.v3 often where the surrounding value starts, yaml.v2
// the line of the problem, but counted from 0 where the parser found it and not
// the scanner.
func syntaxError(c chunk, err error) error {
	line, problem := cutLine(err)
	if _, err := yaml.YAMLToJSON(c.text); err != nil {
		other, same := cutLine(err)
		switch {
		case same != problem, problem == "could not find expected ':'":
		case strings.HasPrefix(problem, "did not find expected"), problem == "found undefined tag handle":
			line = other + 1
		default:
			line = other
		}
	}
	if anchor, ok := strings.CutPrefix(problem, "unknown anchor '"); ok {
		name, _, _ := strings.Cut(anchor, "'")
		line = lineOf(c.text, bytes.Index(c.text, []byte("*"+name)))
	} else if problem == "control characters are not allowed" {
		line = lineOf(c.text, bytes.IndexFunc(c.text, func(r rune) bool { return unicode.IsControl(r) && !strings.ContainsRune("\t\r\n", r) }))
	}
	last := lineOf(c.text, max(0, len(c.text)-1))
	return &lineError{c.line - 1 + max(1, min(line, last)), problem}
}

// cutLine splits an error of a YAML library into line and problem.
func cutLine(err error) (line int, problem string) {
	problem = strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(problem, "line "); ok {
		number, after, _ := strings.Cut(rest, ": ")
		if n, err := strconv.Atoi(number); err == nil {
			return n, after
		}
	}
	return 0, problem
}

// lineOf returns the line of the text that holds an offset, from 1.
func lineOf(text []byte, off int) int {
	line := 1
	for at := nextLine(text, 0); at <= off && at < len(text); line++ {
		at = nextLine(text, at)
	}
	return line
}
