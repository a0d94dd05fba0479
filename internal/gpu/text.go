package gpu

// The text forms below are those of the parsers: what is written reads back.

// MarshalText writes "0000:18:00.0".
func (a Address) MarshalText() ([]byte, error) { return []byte(a.String()), nil }

// UnmarshalText reads what ParseAddress does.
func (a *Address) UnmarshalText(text []byte) (err error) {
	*a, err = ParseAddress(string(text))
	return err
}

// MarshalText writes "10de:2335", and "" for an id that is not known.
func (id ID) MarshalText() ([]byte, error) {
	if id == (ID{}) {
		return nil, nil
	}
	return []byte(id.String()), nil
}

// UnmarshalText reads what ParseID does, and "".
func (id *ID) UnmarshalText(text []byte) (err error) {
	if len(text) == 0 {
		*id = ID{}
		return nil
	}
	*id, err = ParseID(string(text))
	return err
}

// MarshalText writes the number, "none" or "unknown".
func (g Group) MarshalText() ([]byte, error) { return []byte(g.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (g *Group) UnmarshalText(text []byte) (err error) {
	*g, err = ParseGroup(string(text))
	return err
}
