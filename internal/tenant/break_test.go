package tenant

import "testing"

// TestClassThatNobodyCanHaveIsNoKey: whoever limits a class under a name that no class can
// have meant to limit GPUs. It does not count as unlimited.
func TestClassThatNobodyCanHaveIsNoKey(t *testing.T) {
	for _, text := range []string{"class.gpuctl.dev/H200", "class.gpuctl.dev/h_200", "class.gpuctl.dev/h200.big", "requests.class.gpuctl.dev/H200"} {
		if k, ok, err := ParseKey(text); err == nil {
			t.Errorf("%s is read as %v, %v: it limits nothing", text, k, ok)
		}
	}
}
