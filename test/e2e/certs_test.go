package e2e

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gpuctl/gpuctl/internal/certs"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// safe is a Secret and two webhook configurations, which keepers keep.
type safe struct {
	*cluster.Cluster
	t         *testing.T
	namespace string
	hooks     string // name of the configurations
}

const certsHost = "gpuctl-webhook.certs.svc"

func newSafe(t *testing.T) *safe {
	t.Helper()
	c := shared.For(t)
	s := &safe{c, t, c.Namespace(), ""}
	s.hooks = "certs." + s.namespace + ".gpuctl.dev"
	_, err1 := c.Clientset().CoreV1().Secrets(s.namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "certs"}}, metav1.CreateOptions{})
	none := admissionregistrationv1.SideEffectClassNone
	webhook := func(name string) admissionregistrationv1.ValidatingWebhook {
		return admissionregistrationv1.ValidatingWebhook{
			Name: name, SideEffects: &none, AdmissionReviewVersions: []string{"v1"},
			ClientConfig: admissionregistrationv1.WebhookClientConfig{Service: &admissionregistrationv1.ServiceReference{Name: "none", Namespace: s.namespace}},
		}
	}
	configuration := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.hooks},
		Webhooks:   []admissionregistrationv1.ValidatingWebhook{webhook("a.certs.gpuctl.dev"), webhook("b.certs.gpuctl.dev")},
	}
	first := &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: s.hooks},
		Webhooks:   []admissionregistrationv1.MutatingWebhook{{Name: "c.certs.gpuctl.dev", SideEffects: &none, AdmissionReviewVersions: []string{"v1"}, ClientConfig: webhook("").ClientConfig}},
	}
	hooks, mutating := c.Clientset().AdmissionregistrationV1().ValidatingWebhookConfigurations(), c.Clientset().AdmissionregistrationV1().MutatingWebhookConfigurations()
	_, err2 := hooks.Create(t.Context(), configuration, metav1.CreateOptions{})
	_, err3 := mutating.Create(t.Context(), first, metav1.CreateOptions{})
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err1 := hooks.Delete(context.Background(), s.hooks, metav1.DeleteOptions{})
		err2 := mutating.Delete(context.Background(), s.hooks, metav1.DeleteOptions{})
		if err := errors.Join(err1, err2); err != nil {
			t.Error(err)
		}
	})
	return s
}

// settle is how long keepers wait in these tests.
const settle = 600 * time.Millisecond

// keeper runs a keeper until it is stopped, or the test ends.
func (s *safe) keeper(config *rest.Config) (k *certs.Keeper, stop func()) {
	s.t.Helper()
	return s.keeperOf("certs", config)
}

func (s *safe) keeperOf(secret string, config *rest.Config) (k *certs.Keeper, stop func()) {
	s.t.Helper()
	core, err1 := kubernetes.NewForConfig(config)
	objects, err2 := dynamic.NewForConfig(config)
	if err := errors.Join(err1, err2); err != nil {
		s.t.Fatal(err)
	}
	k = certs.New(certs.Options{
		Core: core, Objects: objects, Secret: types.NamespacedName{Namespace: s.namespace, Name: secret}, Name: certsHost,
		Configurations: []certs.Configuration{certs.Mutating(s.hooks), certs.Validating(s.hooks)}, Manager: "test", Log: logr.Discard(), Now: time.Now,
		Look: 50 * time.Millisecond, Settle: settle,
	})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = k.Start(ctx) })
	stop = func() { cancel(); running.Wait() }
	s.t.Cleanup(stop)
	return k, stop
}

// edit patches the Secret, and returns the certificate that was in it.
func (s *safe) edit(patch string) []byte {
	s.t.Helper()
	was, err := s.Clientset().CoreV1().Secrets(s.namespace).Get(s.t.Context(), "certs", metav1.GetOptions{})
	if err == nil {
		_, err = s.Clientset().CoreV1().Secrets(s.namespace).Patch(s.t.Context(), "certs", types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return was.Data["tls.crt"]
}

// remade waits until the Secret has another certificate.
func (s *safe) remade(was []byte) {
	s.t.Helper()
	s.Eventually(soon, "another certificate is made", func(ctx context.Context) error {
		now, err := s.Clientset().CoreV1().Secrets(s.namespace).Get(ctx, "certs", metav1.GetOptions{})
		if err == nil && (len(now.Data["tls.crt"]) == 0 || bytes.Equal(now.Data["tls.crt"], was)) {
			err = errors.New("it is the same")
		}
		return err
	})
}

// authorities returns how many each webhook trusts.
func (s *safe) authorities() (out []int) {
	s.t.Helper()
	c, err := s.Clientset().AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(s.t.Context(), s.hooks, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range c.Webhooks {
		out = append(out, bytes.Count(c.Webhooks[i].ClientConfig.CABundle, []byte("BEGIN")))
	}
	m, err := s.Clientset().AdmissionregistrationV1().MutatingWebhookConfigurations().Get(s.t.Context(), s.hooks, metav1.GetOptions{})
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range m.Webhooks {
		out = append(out, bytes.Count(m.Webhooks[i].ClientConfig.CABundle, []byte("BEGIN")))
	}
	return out
}

// trust waits until all webhooks trust so many authorities.
func (s *safe) trust(amount int) {
	s.t.Helper()
	s.Eventually(soon, "the authorities are trusted", func(context.Context) error {
		if got := s.authorities(); !slices.Equal(got, []int{amount, amount, amount}) {
			return errorf("%v are trusted, want %d", got, amount)
		}
		return nil
	})
}

// What the chart makes is not made by anybody else.
func TestCertificateWithoutItsSecret(t *testing.T) {
	s := newSafe(t)
	k, _ := s.keeperOf("none", s.Config())
	s.Eventually(soon, "it says what is missing", func(context.Context) error {
		if err := k.Ready(); err == nil || !errors.Is(err, certs.ErrMissing) || !strings.Contains(err.Error(), "Secret "+s.namespace+"/none: it is not there; gpuctl upgrade") {
			return errorf("it says %v", err)
		}
		return nil
	})
	if got := s.authorities(); got[0] != 0 || serves(k) != nil {
		t.Errorf("%v authorities are trusted", got)
	}
}

// serves returns the certificate that is served, nil when there is none.
func serves(k *certs.Keeper) []byte {
	c, err := k.Certificate(nil)
	if err != nil {
		return nil
	}
	return c.Certificate[0]
}

// Nothing is served that was not trusted for a while; what was taken away from the
// configuration is put back.
func TestCertificateWaitsForTrust(t *testing.T) {
	s := newSafe(t)
	first, _ := s.keeper(s.Config())
	s.trust(1)
	if err := first.Ready(); err == nil || !strings.Contains(err.Error(), "the webhooks have no certificate") {
		t.Errorf("it is ready at once: %v", err)
	}
	s.Eventually(soon, "it is ready", func(context.Context) error { return first.Ready() })
	second, _ := s.keeper(s.Config())
	s.Eventually(soon, "both serve the same", func(context.Context) error {
		if !bytes.Equal(serves(first), serves(second)) {
			return errors.New("they do not")
		}
		return nil
	})
	none := `[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]`
	if _, err := s.Clientset().AdmissionregistrationV1().ValidatingWebhookConfigurations().Patch(t.Context(), s.hooks, types.JSONPatchType, []byte(none), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	s.trust(1)
}

// A replica whose certificate nobody trusts yet goes on with the one from before.
func TestCertificateStaysUntilTheNextIsTrusted(t *testing.T) {
	s := newSafe(t)
	k, stop := s.keeper(s.Config())
	s.Eventually(soon, "it is ready", func(context.Context) error { return k.Ready() })
	// This one may make certificates, and cannot tell the API server.
	mute, _ := s.keeper(s.User("mute", rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"secrets"}, Verbs: []string{"get", "update"}},
		rbacv1.PolicyRule{APIGroups: []string{"admissionregistration.k8s.io"}, Resources: []string{"mutatingwebhookconfigurations", "validatingwebhookconfigurations"}, Verbs: []string{"get"}}))
	s.Eventually(soon, "the other one is ready", func(context.Context) error { return mute.Ready() })
	before := serves(mute)
	stop()
	s.remade(s.edit(`{"data":{"ca.key":null}}`))
	s.Always(2*settle, "the earlier one is served", func(context.Context) error {
		if !bytes.Equal(serves(mute), before) {
			return errors.New("it is not")
		}
		return nil
	})
	k, _ = s.keeper(s.Config())
	s.trust(2)
	at := time.Now()
	s.Eventually(soon, "both serve the next one", func(context.Context) error {
		if bytes.Equal(serves(mute), before) || !bytes.Equal(serves(mute), serves(k)) {
			return errors.New("they do not")
		}
		return nil
	})
	if waited := time.Since(at); waited < settle-200*time.Millisecond {
		t.Errorf("it is served %s after it was trusted", waited)
	}
}

// held lets one answer about the Secret wait.
type held struct {
	next    http.RoundTripper
	once    *sync.Once
	arrived chan struct{} // closed when the answer is there
	leave   chan struct{} // closed when it may go on
}

func (h held) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := h.next.RoundTrip(r)
	if r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/secrets/certs") {
		h.once.Do(func() {
			close(h.arrived)
			<-h.leave
		})
	}
	return response, err
}

// Who pauses between reading and writing takes no newer authority away.
func TestCertificatesOfAPausedReplica(t *testing.T) {
	s := newSafe(t)
	k, _ := s.keeper(s.Config())
	s.Eventually(soon, "it is ready", func(context.Context) error { return k.Ready() })
	h := held{once: &sync.Once{}, arrived: make(chan struct{}), leave: make(chan struct{})}
	slow := s.Config()
	slow.Wrap(func(next http.RoundTripper) http.RoundTripper { h.next = next; return h })
	paused, _ := s.keeper(slow)
	leave := sync.OnceFunc(func() { close(h.leave) })
	t.Cleanup(leave)
	<-h.arrived
	s.remade(s.edit(`{"data":{"ca.key":null}}`))
	s.trust(2)
	changes, err := s.Clientset().AdmissionregistrationV1().ValidatingWebhookConfigurations().Watch(t.Context(), metav1.SingleObject(metav1.ObjectMeta{Name: s.hooks}))
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	var watching sync.WaitGroup
	watching.Go(func() {
		for event := range changes.ResultChan() {
			c, ok := event.Object.(*admissionregistrationv1.ValidatingWebhookConfiguration)
			if !ok {
				return // the watch was stopped while it read
			}
			seen++
			for _, w := range c.Webhooks {
				if n := bytes.Count(w.ClientConfig.CABundle, []byte("BEGIN")); n != 2 {
					t.Errorf("%s of version %d trusts %d authorities, want 2", w.Name, seen, n)
				}
			}
		}
	})
	leave()
	s.Eventually(soon, "it serves what the other one serves", func(context.Context) error {
		if serves(paused) == nil || !bytes.Equal(serves(paused), serves(k)) {
			return errors.New("it does not")
		}
		return nil
	})
	changes.Stop()
	watching.Wait()
	if seen == 0 {
		t.Error("nothing was seen")
	}
}
