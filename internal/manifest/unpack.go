package manifest

import "strings"

// unpack turns a value into documents: itself, or a List's items.
func (p *parser) unpack(v any, doc Document) {
	obj, isMap := v.(map[string]any)
	doc.Object = obj
	list, hasList := obj["items"].([]any)
	switch kind := doc.Kind(); {
	case v == nil:
	case !isMap:
		p.skip(doc, "it is no Kubernetes object (not a mapping)")
	case kind == "":
		p.skip(doc, "it is no Kubernetes object (no kind)")
	case kind == "List" && !hasList && obj["items"] != nil:
		p.skip(doc, "it is a List whose items are no list")
	case kind == "List" || strings.HasSuffix(kind, "List") && hasList:
		p.unpackItems(obj, list, doc)
	default:
		p.docs = append(p.docs, doc)
	}
}

func (p *parser) unpackItems(obj Object, items []any, doc Document) {
	if len(items) == 0 {
		return
	}
	lines := p.lines[&items[0]]
	for i, item := range items {
		if i < len(lines) {
			doc.Line = lines[i]
		}
		p.unpackItem(item, obj, Document{File: doc.File, Line: doc.Line})
	}
}

// unpackItem unpacks an item of a List. The items of a typed list (NodeList) carry
// neither kind nor apiVersion: they are completed from the list's own.
func (p *parser) unpackItem(v any, list Object, doc Document) {
	item, _ := v.(map[string]any)
	kind := strings.TrimSuffix(str(list["kind"]), "List")
	if item != nil && kind != "" && item["kind"] == nil {
		doc.complete(item, "apiVersion", str(list["apiVersion"]))
		doc.complete(item, "kind", kind)
	}
	p.unpack(v, doc)
}

// complete sets a key of an item where it is missing or null. It notes the line for
// the item's text, which cannot be kept where the null is written out.
func (d *Document) complete(item Object, key, value string) {
	switch old, there := item[key]; {
	case there && old != nil:
		return
	case there:
		d.src = nil
	}
	item[key] = value
	d.head += key + ": " + quoted(value) + "\n"
}

func (p *parser) skip(d Document, reason string) {
	p.skipped = append(p.skipped, Skipped{File: d.File, Line: d.Line, Reason: reason, Object: d.Object})
}
