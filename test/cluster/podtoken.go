package cluster

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// issued is a token with the time of its making and its end.
type issued struct {
	token       string
	since, ends time.Time
}

// maxTokenAge is when a token is replaced however long it lasts.
const maxTokenAge = 24 * time.Hour

// stale reports that it is time for another token: when a fifth of its time is
// left, as kubelet does.
func (i issued) stale(now time.Time) bool {
	return i.token == "" || now.After(i.since.Add(min(maxTokenAge, i.ends.Sub(i.since)*4/5)))
}

// token returns a token of the pod's ServiceAccount that is bound to the pod, so
// that the API server says in it on which node the pod is.
func (b *sandbox) token(ctx context.Context, volume string, source *corev1.ServiceAccountTokenProjection) ([]byte, error) {
	key := volume + "/" + source.Path
	b.mu.Lock()
	current := b.tokens[key]
	b.mu.Unlock()
	now := time.Now()
	if !current.stale(now) {
		return []byte(current.token), nil
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: source.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: b.name, UID: b.uid},
	}}
	if source.Audience != "" {
		request.Spec.Audiences = []string{source.Audience}
	}
	account := b.latest().Spec.ServiceAccountName
	got, err := b.kubelets.stack.clientset.CoreV1().ServiceAccounts(b.namespace).CreateToken(ctx, account, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("request a token of ServiceAccount %s/%s: %w", b.namespace, account, err)
	}
	current = issued{token: got.Status.Token, since: now, ends: got.Status.ExpirationTimestamp.Time}
	b.mu.Lock()
	b.tokens[key] = current
	b.mu.Unlock()
	return []byte(current.token), nil
}

// writeTokenKubeconfig writes a kubeconfig for the account whose token and CA
// are in a folder, and stay there.
func writeTokenKubeconfig(path, server, namespace, account string) error {
	const name = "pod"
	k := api.NewConfig()
	k.Clusters[name] = &api.Cluster{Server: server, CertificateAuthority: filepath.Join(account, "ca.crt")}
	k.AuthInfos[name] = &api.AuthInfo{TokenFile: filepath.Join(account, "token")}
	k.Contexts[name] = &api.Context{Cluster: name, AuthInfo: name, Namespace: namespace}
	k.CurrentContext = name
	if err := clientcmd.WriteToFile(*k, path); err != nil {
		return fmt.Errorf("write the kubeconfig %s: %w", path, err)
	}
	return nil
}
