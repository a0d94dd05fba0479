package manifest

import "bytes"

// utf8BOM may stand at the start of a file. It belongs to the file's encoding and
// to no line of it.
const utf8BOM = "\xef\xbb\xbf"

// chunk is a part of a file that can be parsed alone.
type chunk struct {
	src  []byte // as it stands in the file, a byte order mark included
	text []byte // src without the mark
	line int    // of its first line in the file
}

// documents splits a file at its "---" and "..." lines. YAML takes these for
// document marks wherever they stand at the start of a line, in the midst of a
// quoted text too, so no parser is needed to find them. The first document keeps
// all that stands before and on its mark, the later ones what follows theirs.
func documents(data []byte) []chunk {
	var out []chunk
	var start, first int // of the chunk: offset, line
	marked, content := false, false
	body := len(data) - len(bytes.TrimPrefix(data, []byte(utf8BOM)))
	end := func(at int) {
		out = append(out, chunk{src: data[start:at], text: data[max(start, body):at], line: first + 1})
	}
	for at, line := body, 0; at < len(data); line++ {
		next := nextLine(data, at)
		switch text := data[at:next]; {
		case isMark(text, "..."):
			end(at)
			start, first, marked, content = next, line+1, false, false
		case isMark(text, "---"):
			if marked || content {
				end(at)
				start, first = at, line
				if isEmpty(text[3:]) {
					start, first = next, line+1
				}
			}
			marked, content = true, false
		default:
			content = content || !noContent(text) && (marked || text[0] != '%')
		}
		at = next
	}
	end(len(data))
	return out
}

func isMark(line []byte, mark string) bool {
	return bytes.HasPrefix(line, []byte(mark)) && (len(line) == 3 || isBlank(line[3]) || isBreak(line, 3))
}

// place is the start of a line.
type place struct{ off, line int }

// listItems splits the text of a List into its items, each with its dash and the
// comment right above it, and the rest. Only the plain form that tools write is
// split: "items:" at the start of a line and a block list below. Lines can look
// like that inside a quoted text too, but then no part of the text parses alone.
func listItems(c chunk) (rest []byte, items []chunk, ok bool) {
	list, found := itemsLine(c.text)
	if !found {
		return nil, nil, false
	}
	s := itemSplitter{dash: -1}
	here := list
	for ; here.off < len(c.text); here.line++ {
		next := nextLine(c.text, here.off)
		if !s.take(c.text[here.off:next], here) {
			break
		}
		here.off = next
	}
	if len(s.starts) == 0 {
		return nil, nil, false
	}
	if s.above != nil {
		here = *s.above
	}
	for i, start := range s.starts {
		end := here.off
		if i+1 < len(s.starts) {
			end = s.starts[i+1].off
		}
		text := c.text[start.off:end]
		items = append(items, chunk{src: text, text: text, line: c.line + start.line})
	}
	return bytes.Join([][]byte{c.text[:list.off], c.text[here.off:]}, nil), items, true
}

// itemsLine returns the place below the line "items:".
func itemsLine(text []byte) (place, bool) {
	key := []byte("items:")
	for at, line := 0, 0; at < len(text); line++ {
		next := nextLine(text, at)
		if rest, ok := bytes.CutPrefix(text[at:next], key); ok && noContent(rest) {
			return place{next, line + 1}, true
		}
		at = next
	}
	return place{}, false
}

// itemSplitter finds where the items of a block list start.
type itemSplitter struct {
	dash   int     // column of the dashes, -1 until the first
	starts []place // of the items, the comments right above them included
	above  *place  // of the comment that ends above the next line
}

// take looks at the next line; false when the list ended before it.
func (s *itemSplitter) take(line []byte, here place) bool {
	in := indentOf(line)
	above := s.above
	s.above = nil
	switch {
	case isEmpty(line):
	case isComment(line):
		if s.dash < 0 || in <= s.dash {
			s.above = above
			if above == nil {
				s.above = &here
			}
		}
	case (s.dash < 0 || in == s.dash) && isDash(line[in:]):
		s.dash = in
		if above != nil {
			here = *above
		}
		s.starts = append(s.starts, here)
	case in <= s.dash || s.dash < 0:
		s.above = above
		return false
	}
	return true
}

func isDash(line []byte) bool {
	return line[0] == '-' && (len(line) == 1 || isBlank(line[1]) || isBreak(line, 1))
}

// dedent returns the lines of a List's item without its dash, and as far to the
// left as its text starts. A line that holds the dash only goes.
func dedent(src []byte) []byte {
	text := bytes.Clone(src)
	dash, in := itemStart(text)
	text[dash] = ' '
	var out bytes.Buffer
	for at := 0; at < len(text); {
		next := nextLine(text, at)
		line := text[at:next]
		if dash < at || dash >= next || !isEmpty(line) {
			blanks := len(line) - len(bytes.TrimLeft(line, " \t"))
			out.Write(line[min(in, blanks):])
		}
		at = next
	}
	return out.Bytes()
}

// itemStart returns where an item's dash is, and in which column its text starts:
// behind the dash, or in a line below when there is nothing but a comment.
func itemStart(text []byte) (dash, in int) {
	at := 0
	for isComment(text[at:]) {
		at = nextLine(text, at)
	}
	dash = at + indentOf(text[at:])
	rest := text[dash+1:]
	in = dash + 1 - at
	for len(rest) > 0 && noContent(rest[:nextLine(rest, 0)]) {
		rest = rest[nextLine(rest, 0):]
		in = 0
	}
	return dash, in + len(rest) - len(bytes.TrimLeft(rest, " \t"))
}
