package v1alpha1_test

import (
	"math/rand"
	"testing"

	"k8s.io/apimachinery/pkg/api/apitesting/fuzzer"
	"k8s.io/apimachinery/pkg/api/apitesting/roundtrip"
	metafuzzer "k8s.io/apimachinery/pkg/apis/meta/fuzzer"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
)

// No kind loses anything as JSON.
func TestRoundTrip(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	codecs := serializer.NewCodecFactory(scheme)
	fill := fuzzer.FuzzerFor(metafuzzer.Funcs, rand.NewSource(rand.Int63()), codecs)
	for gvk := range scheme.AllKnownTypes() {
		if gvk.GroupVersion() == v1alpha1.GroupVersion && gvk.Kind[:3] == "GPU" {
			t.Run(gvk.Kind, func(t *testing.T) {
				roundtrip.RoundTripSpecificKindWithoutProtobuf(t, gvk, scheme, codecs, fill, nil)
			})
		}
	}
}
