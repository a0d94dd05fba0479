package patch

import (
	"errors"
	"strings"
	"testing"

	"github.com/gpuctl/gpuctl/internal/manifest"
)

func TestChoose(t *testing.T) {
	const (
		kv      = "---\napiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: kubevirt, namespace: kv}\n"
		other   = "---\napiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: other, namespace: kv}\n"
		managed = "---\napiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k, namespace: cnv, ownerReferences: [{kind: HyperConverged, name: hco}]}\n"
		labeled = "---\napiVersion: kubevirt.io/v1\nkind: KubeVirt\nmetadata: {name: k, namespace: cnv, labels: {app.kubernetes.io/managed-by: hco-operator}}\n"
		hco     = "---\napiVersion: hco.kubevirt.io/v1\nkind: HyperConverged\nmetadata: {name: hco, namespace: cnv}\n"
		foreign = "---\napiVersion: example.com/v1\nkind: KubeVirt\nmetadata: {name: x}\n"
		phase   = "status: {phase: Deployed}\n"
	)
	tests := map[string]struct {
		text, want, wantErr, wantRefusal string
	}{
		"one KubeVirt":                           {text: kv, want: "KubeVirt kv/kubevirt"},
		"one HyperConverged":                     {text: hco, want: "HyperConverged cnv/hco"},
		"owner reference leads to it":            {text: managed + hco, want: "HyperConverged cnv/hco"},
		"label leads to it":                      {text: labeled + hco, want: "HyperConverged cnv/hco"},
		"HyperConverged of another namespace":    {text: kv + hco, want: "KubeVirt kv/kubevirt"},
		"the same object twice":                  {text: kv + kv, want: "KubeVirt kv/kubevirt"},
		"the deployed one of two":                {text: kv + other + phase, want: "KubeVirt kv/other"},
		"the one that is not being deleted":      {text: kv + strings.Replace(other, "name:", "deletionTimestamp: \"2026-01-01T00:00:00Z\", name:", 1), want: "KubeVirt kv/kubevirt"},
		"none":                                   {text: "kind: Other\napiVersion: v1\n", wantErr: "kubectl get kubevirt -A -o yaml"},
		"of another group":                       {text: foreign, wantErr: `passed over KubeVirt x (its apiVersion is "example.com/v1")`},
		"being deleted":                          {text: strings.Replace(kv, "name:", "deletionTimestamp: \"2026-01-01T00:00:00Z\", name:", 1), wantErr: "it is being deleted"},
		"two":                                    {text: kv + other, wantErr: "want exactly one, got KubeVirt kv/kubevirt (cr.yaml:2), KubeVirt kv/other (cr.yaml:6)"},
		"two deployed":                           {text: kv + phase + other + phase, wantErr: "want exactly one"},
		"managed by one that was not given":      {text: managed, wantRefusal: "GPU0320"},
		"managed by one, known by label, absent": {text: labeled, wantRefusal: "GPU0320"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			docs, _, err := manifest.Parse("cr.yaml", []byte(tc.text))
			if err != nil {
				t.Fatal(err)
			}
			got, err := Choose(docs)
			var refusal *Refusal
			switch {
			case tc.wantRefusal != "":
				if !errors.As(err, &refusal) || string(refusal.Findings[0].Code) != tc.wantRefusal {
					t.Errorf("Choose() = %v, want refusal %s", err, tc.wantRefusal)
				}
			case tc.wantErr != "":
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Errorf("Choose() = %v, want %q", err, tc.wantErr)
				}
			case err != nil:
				t.Fatal(err)
			case got.Ref() != tc.want:
				t.Errorf("Choose() = %s, want %s", got.Ref(), tc.want)
			}
		})
	}
}
