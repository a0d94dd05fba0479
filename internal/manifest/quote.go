package manifest

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quoted returns a string as a YAML scalar of one line, plain where every reader
// of YAML 1.1 and 1.2 takes it for the same text. Strings with a colon are
// double-quoted: a selector such as 10DE:1E07 must stay text for every reader.
func quoted(s string) string {
	switch {
	case !isPlainText(s):
		return doubleQuoted(s)
	case isAmbiguous(s):
		return `"` + s + `"`
	case needsQuotes(s):
		return "'" + strings.ReplaceAll(s, "'", "''") + "'"
	case strings.Contains(s, ":"):
		return doubleQuoted(s)
	}
	return s
}

// isPlainText reports whether s can stand in a line as it is.
func isPlainText(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !isVisible(r) })
}

// isVisible reports whether a character is shown, or joins those around it. Line
// breaks, control characters and marks of direction are not.
func isVisible(r rune) bool {
	return unicode.IsGraphic(r) || r == '\u200c' || r == '\u200d'
}

// isAmbiguous reports whether a plain scalar would not be text for everybody.
func isAmbiguous(s string) bool {
	_, isText := implicit(s, true).(string)
	return !isText || looksDecimal(strings.ReplaceAll(s, "_", "")) || isTimestamp(s) || s == "=" || s == "<<"
}

// needsQuotes reports whether a plain scalar would end early or be something else
// than a scalar.
func needsQuotes(s string) bool {
	if s[0] == ' ' || s[len(s)-1] == ' ' || s[len(s)-1] == ':' || strings.Contains(s, ": ") || strings.Contains(s, " #") {
		return true
	}
	if strings.HasPrefix(s, "---") || strings.HasPrefix(s, "...") {
		return true
	}
	if strings.IndexByte("-?:", s[0]) >= 0 {
		return len(s) == 1 || s[1] == ' '
	}
	return strings.IndexByte(",[]{}#&*!|>'\"%@`", s[0]) >= 0
}

func doubleQuoted(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case isVisible(r):
			b.WriteRune(r)
		case r > 0xFFFF:
			fmt.Fprintf(&b, `\U%08X`, r)
		default:
			fmt.Fprintf(&b, `\u%04X`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// literal returns the header and the lines of a text of several lines as a
// literal block; false where it would be hard to read or not come back.
func literal(s string) (header string, lines []string, ok bool) {
	body := strings.TrimRight(s, "\n")
	switch breaks := len(s) - len(body); {
	case breaks == 0:
		header = "|-"
	case breaks == 1:
		header = "|"
	default:
		header = "|+"
		body = s[:len(s)-1]
	}
	lines = strings.Split(body, "\n")
	if len(strings.Split(s, "\n")) < 2 || strings.TrimLeft(lines[0], " \t") != lines[0] || lines[0] == "" {
		return "", nil, false
	}
	for _, line := range lines {
		if !isPlainText(strings.ReplaceAll(line, "\t", "")) || line != "" && strings.Trim(line, " \t") == "" {
			return "", nil, false
		}
	}
	return header, lines, true
}
