package bundle

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"flag"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpuctl/gpuctl/internal/diagnose"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/internal/manifest"
)

var update = flag.Bool("update", false, "write the golden file")

// planted are what must not be in any bundle: each stands somewhere in cluster.yaml
// or launcher.log, with the field that it stands in.
var planted = map[string]string{
	"cloud-init user data":   "hunter2-userdata",
	"its base64 form":        "aHVudGVyMi1pbi1iYXNlNjQtdXNlcmRhdGEtd2l0aC1hLWxvbmctdGFpbC1vZi1ieXRlcw",
	"a Secret":               "c2VjcmV0LW9mLXRlbmFudA",
	"a ConfigMap":            "configmap-content",
	"the legacy ConfigMap":   "legacy-content",
	"last-applied":           "last-applied-content",
	"an environment":         "env-content",
	"a command line":         "argument-content",
	"a volume":               "volume-content",
	"an SSH key":             "AAAAB3NzaC1yc2EAAAADAQABAAABgQC7",
	"a MAC":                  "52:54:00:12:34:56",
	"an IPv4 of a node":      "10.20.30.40",
	"an IPv4 of a message":   "192.168.7.9",
	"an IPv6 of a message":   "2001:db8::17",
	"a serial number":        "SN-0123456789",
	"a firmware serial":      "firmware-serial",
	"a machine id":           "machine-id-content",
	"a system UUID":          "4c4c4544-0042-3510-8052-b4c04f564d32",
	"a JWT of a message":     "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl",
	"a password of a log":    "log-password",
	"a token of a condition": "condition-token",
	"a registry":             "registry.internal.example",
	"a patch of the CR":      "patch-content",
	"a pull secret":          "pull-secret-content",
	"a node label":           "label-content",
	"another Deployment":     "deployment-content",
	"a Lease's holder":       "holder-content",
	"a password of wiring":   "wiring-password",
	"a private key":          "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC",
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", file))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// full is a bundle of everything that is planted.
func full(t *testing.T) *Bundle {
	t.Helper()
	docs, _, err := manifest.Load(nil, "testdata/cluster.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return &Bundle{
		About:      About{Version: "v1.2.3", Packed: time.Unix(1_700_000_000, 0).UTC()},
		Docs:       docs,
		Conditions: []manifest.Object{{"type": "Synchronized", "status": "False", "message": "token=condition-token", "other": "env-content"}},
		Logs:       []diagnose.Log{{Name: "/root/launcher.log", Lines: strings.Split(string(read(t, "launcher.log")), "\n")}},
	}
}

// contents unpacks an archive, by name.
func contents(t *testing.T, path string) map[string]string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for archive := tar.NewReader(zip); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		out[header.Name] = string(text)
	}
}

func TestNothingPlantedIsPacked(t *testing.T) {
	source := string(read(t, "cluster.yaml")) + string(read(t, "launcher.log")) + "condition-token"
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := Write(path, full(t)); err != nil {
		t.Fatal(err)
	}
	files := contents(t, path)
	for what, secret := range planted {
		if !strings.Contains(source, secret) {
			t.Errorf("%s (%s) is not planted", what, secret)
		}
		for name, text := range files {
			if strings.Contains(text, secret) {
				t.Errorf("%s is in %s: %s", what, name, regexp.MustCompile(`.*`+regexp.QuoteMeta(secret)+`.*`).FindString(text))
			}
		}
	}
	for _, name := range []string{"secret.yaml", "job.yaml"} {
		if text, packed := files["gpuctl-bundle/objects/"+name]; packed {
			t.Errorf("a kind that nobody reads is packed: %s", text)
		}
	}
}

// TestPackedObjects pins what is left of each object.
func TestPackedObjects(t *testing.T) {
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := Write(path, full(t)); err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	files := contents(t, path)
	for _, name := range []string{"objects/configmap.yaml", "objects/deployment.yaml", "objects/event.yaml", "objects/gpuwiring.yaml", "objects/kubevirt.yaml", "objects/lease.yaml", "objects/node.yaml", "objects/pod.yaml", "objects/virtualmachine.yaml", "logs/0.json", "conditions.json"} {
		got.WriteString("-- " + name + " --\n" + files["gpuctl-bundle/"+name])
	}
	if *update {
		if err := os.WriteFile("testdata/packed.golden", []byte(got.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(string(read(t, "packed.golden")), got.String()); diff != "" {
		t.Errorf("packed (-want +got), go test -update accepts it:\n%s", diff)
	}
}

func TestReadsBack(t *testing.T) {
	want := full(t)
	parent := gpu.Address{Bus: 0x3b}
	numa := 1
	want.Inventory = []Inventory{{
		Host: gpu.Host{Node: "gpu-1", IOMMUFD: gpu.Absent, Functions: []gpu.Function{
			{Address: parent, ID: gpu.NVIDIA(0x2230), Class: 0x030200, Driver: "nvidia", Group: gpu.InGroup(0), NUMA: &numa, VFIONode: gpu.Present},
			{Address: gpu.Address{Bus: 0x3b, Function: 4}, Class: 0x030200, DriverUnknown: true, Group: gpu.NoGroup(), VF: true, PhysFn: &parent},
			{Address: gpu.Address{Bus: 0x3c}, VGPUTypes: []gpu.VGPUType{{ID: 5, Name: "L40S-24Q"}}},
		}, Mdevs: []gpu.Mdev{{UUID: "u", TypeID: "nvidia-592", Parent: parent}}},
		Findings: []diagnose.Finding{{Code: "GPU0215", Severity: diagnose.Warning, Object: "host", Message: "x"}},
	}}
	path := filepath.Join(t.TempDir(), "b.tar.gz")
	if err := Write(path, want); err != nil {
		t.Fatal(err)
	}
	if !Is(path) || Is("testdata/cluster.yaml") || Is("testdata/nothing") {
		t.Error("Is() does not tell a bundle from a manifest")
	}
	got, err := Read(path)
	if err != nil {
		t.Fatal(err)
	}
	compare := cmp.AllowUnexported(gpu.Group{})
	if diff := cmp.Diff(want.Inventory, got.Inventory, compare); diff != "" {
		t.Errorf("inventories (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want.About, got.About); diff != "" {
		t.Errorf("about (-want +got):\n%s", diff)
	}
	if len(got.Docs) == 0 || len(got.Conditions) != 1 || len(got.Logs) != 1 || len(got.Logs[0].Lines) != len(want.Logs[0].Lines) {
		t.Errorf("got %d documents, %d conditions, logs %+v", len(got.Docs), len(got.Conditions), got.Logs)
	}
}

func TestWriteReplacesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "b.tar.gz")
	if err := os.WriteFile(path, []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Write(path, full(t)); err == nil || !strings.Contains(err.Error(), "it exists") {
		t.Errorf("Write over a file: %v", err)
	}
	if data, _ := os.ReadFile(path); string(data) != "mine" {
		t.Errorf("the file holds %q", data)
	}
	if err := Write(filepath.Join(dir, "no", "b.tar.gz"), full(t)); err == nil {
		t.Error("a folder that is not there is no error")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestReadRefuses reads archives that are not whole, or none of gpuctl's.
func TestReadRefuses(t *testing.T) {
	pack := func(files map[string]string) []byte {
		var out bytes.Buffer
		zip := gzip.NewWriter(&out)
		archive := tar.NewWriter(zip)
		for name, text := range files {
			if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text))}); err != nil {
				t.Fatal(err)
			}
			if _, err := archive.Write([]byte(text)); err != nil {
				t.Fatal(err)
			}
		}
		if err := errors.Join(archive.Close(), zip.Close()); err != nil {
			t.Fatal(err)
		}
		return out.Bytes()
	}
	whole := pack(map[string]string{"gpuctl-bundle/bundle.json": `{"format": 1}`, "gpuctl-bundle/objects/node.yaml": strings.Repeat("a: b\n", 1000)})
	for name, tc := range map[string]struct {
		data []byte
		want string
	}{
		"no gzip":        {[]byte("plain"), "gzip"},
		"cut short":      {whole[:len(whole)/2], "EOF"},
		"another tar":    {pack(map[string]string{"x": "y"}), "no bundle of gpuctl"},
		"another format": {pack(map[string]string{"gpuctl-bundle/bundle.json": `{"format": 7, "gpuctl": "v9.0.0"}`}), "format is 7"},
		"no YAML":        {pack(map[string]string{"gpuctl-bundle/bundle.json": `{"format": 1}`, "gpuctl-bundle/objects/node.yaml": "a: [b"}), "objects/node.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "b.tar.gz")
			if err := os.WriteFile(path, tc.data, 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := Read(path); err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), path) {
				t.Errorf("Read() = %v, want an error with %q and the file", err, tc.want)
			}
		})
	}
}
