package cluster

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestScrub(t *testing.T) {
	const uuid = "7ece9ff1-b292-474e-aaf4-58e863ae2053"
	tests := map[string]struct{ secret, text string }{
		"jwt":                  {"eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl", "token eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2lnbmF0dXJl was refused"},
		"bearer":               {"abcdefgh12345678", "Authorization: Bearer abcdefgh12345678"},
		"basic":                {"dXNlcjpwYXNz", "authorization: Basic dXNlcjpwYXNz"},
		"password":             {"hunter2", "password=hunter2"},
		"quoted password":      {"two", `password: "hunter two"`},
		"json password":        {"hunter2", `{"password":"hunter2","x":1}`},
		"escaped json":         {"hunter2", `{\"password\":\"hunter2\"}`},
		"flag":                 {"hunter2", "--password hunter2 --name x"},
		"odd password":         {"er2", "password=hunt;er2,x next"},
		"passwd":               {"hunter2", "chpasswd: root:hunter2"},
		"environment":          {"s3cr3t", "DB_PASSWORD=s3cr3t"},
		"camel":                {"s3cr3t", "clientSecret: s3cr3t"},
		"api key":              {"s3cr3t", "X-API-Key: s3cr3t"},
		"access key":           {"s3cr3t", "aws_secret_access_key = s3cr3t"},
		"ipv4":                 {"10.0.0.1", "dial tcp 10.0.0.1:6443: refused"},
		"ipv4 in brackets":     {"192.168.1.20", "[192.168.1.20]"},
		"ipv4, escaped":        {"10.0.0.1", `failed:\n10.0.0.1 is gone`},
		"ipv6, escaped":        {"fd00::1", `failed:\nfd00::1 is gone`},
		"mac, escaped":         {"52:54:00:12:34:56", `failed:\n52:54:00:12:34:56 is gone`},
		"ipv6 behind a key":    {"fd00::1", "addr:fd00::1, port:1"},
		"block password":       {"hunter2", "password: |\n    hunter2\n"},
		"password below":       {"hunter2", "password:\n    hunter2\n"},
		"ipv6":                 {"2001:db8::1", "dial tcp [2001:db8::1]:6443"},
		"ipv6 full":            {"2001:0db8:0000:0000:0000:0000:0000:0001", "at 2001:0db8:0000:0000:0000:0000:0000:0001 now"},
		"link local":           {"fe80::5054:ff:fe12:3456", "inet6 fe80::5054:ff:fe12:3456/64"},
		"mapped":               {"::ffff:10.1.2.3", "from ::ffff:10.1.2.3 port"},
		"ipv6 of groups":       {"fd00:1:2:3::", "route fd00:1:2:3::/64"},
		"ula":                  {"fd12::5", "at fd12::5."},
		"mac":                  {"52:54:00:12:34:56", "mac 52:54:00:12:34:56 is"},
		"mac, dashed":          {"52-54-00-12-34-56", "mac 52-54-00-12-34-56 is"},
		"mac, dotted":          {"5254.0012.3456", "mac 5254.0012.3456 is"},
		"serial":               {"1320221035512", "Serial Number : 1320221035512"},
		"serial, bare":         {"1320221035512", "GPU serial 1320221035512 is gone"},
		"serial, short":        {"1320221035512", "serial=1320221035512"},
		"serial, smbios":       {"CZJ1234567", `serial: "CZJ1234567"`},
		"device serial":        {"48-b0-2d-ff-ff-a1-b2-c3", "Device Serial Number 48-b0-2d-ff-ff-a1-b2-c3"},
		"uuid":                 {uuid, "GPU-" + uuid + " is"},
		"pem":                  {"MIIEvQIBADAN", "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\n-----END PRIVATE KEY-----\n"},
		"pem in one line":      {"MIIEvQIBADAN", `key: "-----BEGIN RSA PRIVATE KEY-----\nMIIEvQIBADAN\n-----END RSA PRIVATE KEY-----\n" rest`},
		"pem, cut off":         {"MIIEvQIBADAN", "-----BEGIN EC PRIVATE KEY-----\nMIIEvQIBADAN"},
		"pem, cut in front":    {"MIIEvQIBADAN", "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj\nMIIEvQIBADAN\n-----END PRIVATE KEY-----"},
		"cloud-init":           {"I2Nsb3VkLWNvbmZpZwp1c2VyczoK", "userDataBase64: I2Nsb3VkLWNvbmZpZwp1c2VyczoK"},
		"cloud-init in text":   {"hunter2", "userData: |\n  #cloud-config\n  password: hunter2\n"},
		"base64":               {strings.Repeat("QUJD", 14), "data " + strings.Repeat("QUJD", 14) + " end"},
		"base64url":            {"Zm9vYmFyMTIzNDU2Nzg5", "data aGVsbG8td29ybGQtMTIzNA_Zm9vYmFyMTIzNDU2Nzg5-eHl6QUJDREVG end"},
		"url":                  {"pa55", "https://bob:pa55@registry.example.com/v2/"},
		"url with an at":       {"pa@55", "https://bob:pa@55@registry.example.com/v2/"},
		"url with a slash":     {"pa/55", "https://bob:pa/55@registry.example.com/v2/"},
		"url with token only":  {"t0kent0ken", "https://t0kent0ken@github.com/x"},
		"url, upper case":      {"pa55", "HTTPS://bob:pa55@registry.example.com/"},
		"github token":         {"ghp_abcdefghijklmnopqrst", "using ghp_abcdefghijklmnopqrst now"},
		"fine-grained token":   {"github_pat_11ABCDEFG0abcdefghij", "using github_pat_11ABCDEFG0abcdefghij now"},
		"nvidia key":           {"nvapi-abcdefghijklmnopqrstuv", "using nvapi-abcdefghijklmnopqrstuv now"},
		"bootstrap token":      {"abcdef.0123456789abcdef", "kubeadm join --token abcdef.0123456789abcdef"},
		"ssh key":              {"AAAAC3NzaC1lZDI1NTE5AAAAIJ", "ssh_authorized_keys: [ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ bob@host]"},
		"crypt":                {"$6$salt$abcdefghijkl", "passwd: $6$salt$abcdefghijkl"},
		"crypt alone":          {"$6$saltsalt$abcdefghijklmnop", "bob $6$saltsalt$abcdefghijklmnop x"},
		"mail":                 {"bob@example.com", "issued to bob@example.com by"},
		"licence token":        {"t0ken", "ClientConfigToken=t0ken"},
		"kubelet bearer":       {"sha256~abcdefghijklmnop", "token sha256~abcdefghijklmnop"},
		"password with spaces": {"hunter2", "password = hunter2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Scrub(tt.text); strings.Contains(got, tt.secret) {
				t.Errorf("Scrub(%q) = %q, want it without %q", tt.text, got, tt.secret)
			}
		})
	}
}

func TestScrubKeeps(t *testing.T) {
	for name, text := range map[string]string{
		"address":        "vfio 0000:41:00.0: group 12 is not viable",
		"short address":  "41:00.0 VGA compatible controller [0300]: NVIDIA Corporation [10de:2335] (rev a1)",
		"upper address":  "0000:AF:00.0",
		"wide domain":    "10001:00:00.0",
		"slot alone":     "slot 0000:41:00 is",
		"bus alone":      "bus 0000:41",
		"address list":   "0000:41:00.0,0000:42:00.0",
		"ids":            "10de:2335 10DE:1EB8 15b3:1017",
		"ids, list":      "ids=10de:2335,10de:2336",
		"resource":       "0/1 nodes are available: 1 Insufficient nvidia.com/GA100_A100_SXM4_40GB.",
		"nodes":          "node worker-1.gpu.example.com, gpu-node-07",
		"versions":       "v1.8.4 580.65.06 1.2.3 v25.10.0-rc.1 5.15.0-1034",
		"image":          "nvcr.io/nvidia/kubevirt-gpu-device-plugin:v1.4.0",
		"time":           "2026-06-28T10:05:00.313360Z at 10:05:00",
		"go's time":      "2026/06/28 10:05:00 starting",
		"klog":           "I0628 10:05:00.313360       1 main.go:12] ready",
		"sysfs":          "/sys/bus/pci/devices/0000:41:00.0/iommu_group",
		"vfio":           "/dev/vfio/12 and /dev/vfio/devices/vfio0",
		"libvirt":        "LibvirtError(Code=1, Domain=10, Message='internal error: qemu unexpectedly closed the monitor')",
		"qemu":           "-device vfio-pci,host=0000:01:00.0,id=ua-gpu-gpu1,bus=pci.6,addr=0x0",
		"dma map":        "vfio_container_dma_map(0x5632ad2e1e80, 0xfffc0000, 0x40000, 0x7fdf48200000) = -12",
		"variables":      "PCI_RESOURCE_NVIDIA_COM_GPU not set for resource nvidia.com/gpu",
		"secret's name":  "secret \"gpu-licence\" not found",
		"token's lack":   "no token was given",
		"long path":      "/usr/share/gpu/very/long/path/that/goes/on/and/on/for/more/than/48",
		"package":        "kubernetes/kubernetes/pkg/kubelet/cm/devicemanager/manager/allocate",
		"long name":      "nvidia.com/GA102GL_A10_WITH_A_VERY_LONG_NAME_THAT_GOES_ON_AND_ON_FOR_MORE",
		"cpp name":       "std::string and std::deadbeef",
		"quota":          "exceeded quota: gpus, requested: requests.nvidia.com/GA102GL_A10=1",
		"service":        "webhook \"x.kubevirt.io\": Post \"https://virt-api.kubevirt.svc:443/x\"",
		"module version": "helm.sh/helm/v3@v3.22.0",
		"basic word":     "a basic configuration",
		"node's name":    "node ip-10-0-0-1.eu-west-1.compute.internal",
	} {
		t.Run(name, func(t *testing.T) {
			if got := Scrub(text); got != text {
				t.Errorf("Scrub(%q) = %q", text, got)
			}
		})
	}
}

// secretsOf draws something that must not get through, with the text around it that
// makes it one.
func secretsOf() *rapid.Generator[[2]string] {
	word := func(chars string, low, high int) *rapid.Generator[string] {
		return rapid.StringOfN(rapid.RuneFrom([]rune(chars)), low, high, -1)
	}
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	plain := func(g *rapid.Generator[string]) *rapid.Generator[[2]string] {
		return rapid.Map(g, func(s string) [2]string { return [2]string{s, s} })
	}
	return rapid.OneOf(
		plain(rapid.Custom(func(t *rapid.T) string {
			return "eyJ" + word(letters+"_-", 10, 60).Draw(t, "head") + "." + word(letters+"_-", 10, 60).Draw(t, "body") + "." + word(letters+"_-", 10, 60).Draw(t, "signature")
		})),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := word(letters+"+/_.~-", 8, 40).Draw(t, "token") + "x"
			return [2]string{s, rapid.SampledFrom([]string{"Bearer ", "bearer ", "Authorization: Bearer "}).Draw(t, "kind") + s}
		}),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := "Q" + word(letters+"!$%^&*()_+-.@#", 6, 20).Draw(t, "password") + "z"
			key := rapid.SampledFrom([]string{"password=", "Password: ", "PASSWD=", "passphrase: ", "db_password = ", `"password":"`, "clientSecret: ", "api_key=", "--token="}).Draw(t, "key")
			return [2]string{s, key + s}
		}),
		plain(rapid.Custom(func(t *rapid.T) string {
			octet := rapid.IntRange(0, 255)
			return fmt.Sprintf("%d.%d.%d.%d", octet.Draw(t, "a"), octet.Draw(t, "b"), octet.Draw(t, "c"), octet.Draw(t, "d"))
		})),
		plain(rapid.Custom(func(t *rapid.T) string {
			var parts []string
			for range 8 {
				parts = append(parts, fmt.Sprintf("%x", rapid.IntRange(0, 0xffff).Draw(t, "group")))
			}
			if at := rapid.IntRange(0, 6).Draw(t, "cut"); at > 0 {
				return strings.Join(parts[:at], ":") + "::" + strings.Join(parts[min(at+1+rapid.IntRange(0, 6).Draw(t, "gap"), 7):], ":")
			}
			return strings.Join(parts, ":")
		})),
		plain(rapid.Custom(func(t *rapid.T) string {
			var parts []string
			for range 6 {
				parts = append(parts, fmt.Sprintf("%02x", rapid.IntRange(0, 255).Draw(t, "byte")))
			}
			return strings.Join(parts, rapid.SampledFrom([]string{":", "-"}).Draw(t, "by"))
		})),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := "S" + word("0123456789ABCDEFGHJK", 8, 16).Draw(t, "serial")
			return [2]string{s, rapid.SampledFrom([]string{"Serial Number: ", "serial=", "Serial: ", "serial_number: "}).Draw(t, "key") + s}
		}),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := word(letters+"+/", 64, 64).Draw(t, "body")
			return [2]string{s, "-----BEGIN RSA PRIVATE KEY-----\n" + s + "\n-----END RSA PRIVATE KEY-----"}
		}),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := base64.StdEncoding.EncodeToString([]byte("#cloud-config\nusers:\n- name: " + word(letters, 20, 80).Draw(t, "user")))
			return [2]string{s, s}
		}),
		rapid.Custom(func(t *rapid.T) [2]string {
			s := "P" + word(letters+"!$%^&*()_+-.", 6, 20).Draw(t, "password") + "z"
			return [2]string{s, "https://" + word("abcdef", 1, 8).Draw(t, "user") + ":" + s + "@registry.example.com/x"}
		}),
	)
}

// harmless draws what must stay.
func harmless() *rapid.Generator[string] {
	hex := rapid.IntRange(0, 255)
	return rapid.OneOf(
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("0000:%02x:%02x.%d", hex.Draw(t, "bus"), rapid.IntRange(0, 31).Draw(t, "slot"), rapid.IntRange(0, 7).Draw(t, "function"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("%02x:%02x.%d", hex.Draw(t, "bus"), rapid.IntRange(0, 31).Draw(t, "slot"), rapid.IntRange(0, 7).Draw(t, "function"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("10de:%04x", rapid.IntRange(0, 0xffff).Draw(t, "device"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			n := rapid.IntRange(0, 999)
			return fmt.Sprintf("v%d.%d.%d", n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			n := rapid.IntRange(0, 999)
			return fmt.Sprintf("%d.%02d.%02d", n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c"))
		}),
		rapid.SampledFrom([]string{
			"nvidia.com/GH100_H200_SXM_141GB", "nvidia.com/20b0", "worker-1", "gpu-07.example.com", "group 12", "/dev/vfio/12",
			"VirtualMachine tenant-a/trainer", "IOMMU", "0/3 nodes are available",
		}),
	)
}

func TestScrubProperties(t *testing.T) {
	between := rapid.SampledFrom([]string{" ", ", ", "; ", "\n", " (", ") ", " \"", "\" ", "\t", " = ", " [", "] "})
	rapid.Check(t, func(t *rapid.T) {
		secret := secretsOf().Draw(t, "secret")
		before, after := harmless().Draw(t, "before"), harmless().Draw(t, "after")
		text := before + between.Draw(t, "gap") + secret[1] + "\n" + after
		if inQuotes := strings.Contains(secret[1], `"`); inQuotes {
			text = before + " " + secret[1] + "\"\n" + after
		}
		got := Scrub(text)
		if strings.Contains(got, secret[0]) {
			t.Fatalf("Scrub(%q) = %q: the secret is still there", text, got)
		}
		if !strings.HasPrefix(got, before) || !strings.HasSuffix(got, after) {
			t.Fatalf("Scrub(%q) = %q: %q or %q is lost", text, got, before, after)
		}
		if again := Scrub(got); again != got {
			t.Fatalf("Scrub twice: %q, then %q", got, again)
		}
	})
}

func TestScrubKeepsProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Join(rapid.SliceOfN(harmless(), 1, 8).Draw(t, "words"), rapid.SampledFrom([]string{" ", ", ", "\n", ": ", "; "}).Draw(t, "by"))
		if got := Scrub(text); got != text {
			t.Fatalf("Scrub(%q) = %q", text, got)
		}
	})
}
