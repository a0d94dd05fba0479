package manifest

import "bytes"

// nextLine returns where the line after the one at off starts. It breaks lines
// where YAML 1.1 and so the scanner does, so that line numbers agree with it.
func nextLine(data []byte, off int) int {
	for ; off < len(data); off++ {
		switch data[off] {
		case '\n':
			return off + 1
		case '\r':
			if off+1 < len(data) && data[off+1] == '\n' {
				return off + 2
			}
			return off + 1
		case 0xC2: // next line
			if off+1 < len(data) && data[off+1] == 0x85 {
				return off + 2
			}
		case 0xE2: // line and paragraph separator
			if off+2 < len(data) && data[off+1] == 0x80 && (data[off+2] == 0xA8 || data[off+2] == 0xA9) {
				return off + 3
			}
		}
	}
	return len(data)
}

// isBreak reports whether a line break starts at off.
func isBreak(data []byte, off int) bool {
	switch data[off] {
	case '\n', '\r':
		return true
	case 0xC2, 0xE2:
		next := nextLine(data, off)
		return next == off+2 && data[off] == 0xC2 || next == off+3 && data[off] == 0xE2
	}
	return false
}

// withoutBreak returns a line, or a text, without the line break at its end.
func withoutBreak(line []byte) []byte {
	for _, end := range []string{"\r\n", "\n", "\r", "\u0085", "\u2028", "\u2029"} {
		if rest, ok := bytes.CutSuffix(line, []byte(end)); ok {
			return rest
		}
	}
	return line
}

// indentOf returns how many spaces a line starts with.
func indentOf(line []byte) int { return len(line) - len(bytes.TrimLeft(line, " ")) }

func isBlank(c byte) bool { return c == ' ' || c == '\t' }

// isEmpty reports whether a line holds nothing but blanks.
func isEmpty(line []byte) bool { return len(bytes.TrimLeft(withoutBreak(line), " \t")) == 0 }

// isComment reports whether a line holds nothing but a comment.
func isComment(line []byte) bool {
	rest := bytes.TrimLeft(line, " \t")
	return len(rest) > 0 && rest[0] == '#'
}

// noContent reports whether nothing but blanks and a comment follows.
func noContent(rest []byte) bool { return isEmpty(rest) || isComment(rest) }

// eolOf returns the line break that a text uses.
func eolOf(text []byte) string {
	if i := bytes.IndexByte(text, '\n'); i > 0 && text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}
