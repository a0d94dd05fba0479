package v1alpha1_test

import (
	"testing"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// TestReferencesHaveOneReading: fields that are not known are errors, and so is one that is
// there twice: of two readers each could take another one.
func TestReferencesHaveOneReading(t *testing.T) {
	for name, text := range map[string]string{
		"capitals":         `{"Devices":["a"]}`,
		"devices twice":    `{"devices":["a"],"devices":["b"]}`,
		"count of another": `{"templates":[{"class":"h200","count":8}],"templates":[{"class":"l40s"}]}`,
		"count twice":      `{"templates":[{"class":"h200","count":8,"count":1}]}`,
		"count null":       `{"templates":[{"class":"h200","count":null}]}`,
		"devices are null": `{"devices":null,"templates":[{"class":"h200"}]}`,
		"two spellings, ſ": `{"devices":["a"],"deviceſ":["b"]}`,
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := v1alpha1.DecodeReferences(text); err == nil {
				t.Errorf("it is taken: %+v", got)
			}
		})
	}
}
