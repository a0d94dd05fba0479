package manifest

import (
	"fmt"
	"strings"
	"testing"
)

// manyNodes returns a NodeList as kubectl prints it, with n nodes of 12 KB.
func manyNodes(n int) []byte {
	var b strings.Builder
	b.WriteString("apiVersion: v1\nkind: List\nitems:\n")
	for i := range n {
		fmt.Fprintf(&b, "- apiVersion: v1\n  kind: Node\n  metadata:\n    name: n%05d\n    labels:\n", i)
		for j := range 80 {
			fmt.Fprintf(&b, "      feature.node.kubernetes.io/cpu-%d: 'true'\n", j)
		}
		b.WriteString("  status:\n    images:\n")
		for j := range 50 {
			fmt.Fprintf(&b, "    - names:\n      - registry.example.com/some/very/long/image/name-%d@sha256:%s\n      sizeBytes: 12345678\n", j, strings.Repeat("a", 64))
		}
	}
	return []byte(b.String())
}

func BenchmarkParseNodes(b *testing.B) {
	data := manyNodes(100)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		if docs, _, err := Parse("f", data); err != nil || len(docs) != 100 {
			b.Fatal(len(docs), err)
		}
	}
}

// BenchmarkText puts 100 entries into a CR that has as many.
func BenchmarkText(b *testing.B) {
	text := "kind: KubeVirt\nspec:\n  configuration:\n    permittedHostDevices:\n      pciHostDevices:\n"
	var edits []Edit
	for range 100 {
		text += "      - pciVendorSelector: \"10DE:1E07\"\n        resourceName: nvidia.com/X\n"
		edits = append(edits, appendEntry)
	}
	docs, _, err := Parse("f", []byte(text))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, anew, err := docs[0].render(edits); anew || err != nil {
			b.Fatal(anew, err)
		}
	}
}
