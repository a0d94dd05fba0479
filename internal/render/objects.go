package render

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
)

// Objects prints tables of the API server as kubectl get does, by the same library. Rows
// that follow one another stand in the same columns, below one header.
type Objects struct {
	w       io.Writer // of a table: it aligns what it gets
	flush   func()
	printer printers.ResourcePrinter
	table   bool
}

// NewObjects returns a printer of objects in a format: table, wide, json, yaml or name.
// Rows of the last three must have the whole object. A table has a column for the
// namespace if namespaces says so.
func NewObjects(w io.Writer, format string, namespaces bool) *Objects {
	o := &Objects{w: w, flush: func() {}}
	switch format {
	case "json":
		o.printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.JSONPrinter{}}
	case "yaml":
		o.printer = &printers.OmitManagedFieldsPrinter{Delegate: &printers.YAMLPrinter{}}
	case "name":
		o.printer = &printers.NamePrinter{}
	default:
		aligned := printers.GetNewTabWriter(w)
		o.w, o.flush, o.table = aligned, func() { _ = aligned.Flush() }, true
		o.printer = printers.NewTablePrinter(printers.PrintOptions{Wide: format == "wide", WithNamespace: namespaces})
	}
	return o
}

// Rows prints rows, or the object of each.
func (o *Objects) Rows(t *metav1.Table) error {
	if o.table {
		defer o.flush()
		return o.printer.PrintObj(t, o.w)
	}
	for _, row := range t.Rows {
		if err := o.printer.PrintObj(row.Object.Object, o.w); err != nil {
			return err
		}
	}
	return nil
}

// List prints rows, or the objects as one List.
func (o *Objects) List(t *metav1.Table) error {
	if _, names := o.printer.(*printers.NamePrinter); names || o.table {
		return o.Rows(t)
	}
	list := &unstructured.UnstructuredList{Object: map[string]any{
		"kind": "List", "apiVersion": "v1", "metadata": map[string]any{"resourceVersion": ""},
	}}
	for _, row := range t.Rows {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(row.Object.Object)
		if err != nil {
			return err
		}
		list.Items = append(list.Items, unstructured.Unstructured{Object: content})
	}
	return o.printer.PrintObj(list, o.w)
}
