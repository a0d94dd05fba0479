package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/clientcmd/api"
)

// tokenFolder is where every pod finds the token of its account.
const tokenFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// podLog is where the output of a pod's container goes.
func (s *stack) podLog(pod *corev1.Pod, container string) string {
	return s.dir.log(fmt.Sprintf("pod-%s_%s_%s", pod.Namespace, pod.Name, container))
}

func (r *podRun) volume(name string) string { return filepath.Join(r.dir, "volumes", name) }

// writeFiles makes the pod's folder: its volumes, and what its processes need to
// find the API server.
func (r *podRun) writeFiles() error {
	for _, dir := range []string{r.dir, filepath.Join(r.dir, "tmp"), filepath.Join(r.dir, "no-host", "sys", "bus", "pci", "devices")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	for i := range r.pod.Spec.Volumes {
		v := &r.pod.Spec.Volumes[i]
		if err := os.MkdirAll(r.volume(v.Name), 0o700); err != nil {
			return err
		}
		if err := r.fill(v); err != nil {
			return fmt.Errorf("volume %s: %w", v.Name, err)
		}
	}
	return r.writeKubeconfig()
}

// fill writes what is in a volume.
func (r *podRun) fill(v *corev1.Volume) error {
	switch {
	case v.EmptyDir != nil:
		return nil
	case v.Projected != nil:
		var errs []error
		for _, p := range v.Projected.Sources {
			errs = append(errs, r.project(r.volume(v.Name), p))
		}
		return errors.Join(errs...)
	case v.ConfigMap != nil:
		return r.writeConfigMap(r.volume(v.Name), v.ConfigMap.Name, v.ConfigMap.Items, v.ConfigMap.Optional)
	case v.Secret != nil:
		return r.writeSecret(r.volume(v.Name), v.Secret.SecretName, v.Secret.Items, v.Secret.Optional)
	case v.DownwardAPI != nil:
		return r.writeDownward(r.volume(v.Name), v.DownwardAPI.Items)
	}
	return errors.New("this kind of volume is not played")
}

func (r *podRun) project(dir string, p corev1.VolumeProjection) error {
	switch {
	case p.ServiceAccountToken != nil:
		return r.writeToken(filepath.Join(dir, p.ServiceAccountToken.Path), p.ServiceAccountToken)
	case p.ConfigMap != nil:
		return r.writeConfigMap(dir, p.ConfigMap.Name, p.ConfigMap.Items, p.ConfigMap.Optional)
	case p.Secret != nil:
		return r.writeSecret(dir, p.Secret.Name, p.Secret.Items, p.Secret.Optional)
	case p.DownwardAPI != nil:
		return r.writeDownward(dir, p.DownwardAPI.Items)
	}
	return errors.New("this kind of projection is not played")
}

func (r *podRun) writeConfigMap(dir, name string, items []corev1.KeyToPath, optional *bool) error {
	cm, err := r.runner.stack.clientset.CoreV1().ConfigMaps(r.pod.Namespace).Get(r.ctx, name, metav1.GetOptions{})
	if err != nil {
		return unless(optional, err)
	}
	data := map[string][]byte{}
	for key, text := range cm.Data {
		data[key] = []byte(text)
	}
	return writeItems(dir, data, items)
}

func (r *podRun) writeSecret(dir, name string, items []corev1.KeyToPath, optional *bool) error {
	secret, err := r.runner.stack.clientset.CoreV1().Secrets(r.pod.Namespace).Get(r.ctx, name, metav1.GetOptions{})
	if err != nil {
		return unless(optional, err)
	}
	return writeItems(dir, secret.Data, items)
}

func (r *podRun) writeDownward(dir string, items []corev1.DownwardAPIVolumeFile) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return errors.New("resourceFieldRef is not played")
		}
		text, err := r.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, item.Path), []byte(text), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// unless forgives the lack of what is optional.
func unless(optional *bool, err error) error {
	if optional != nil && *optional {
		return nil
	}
	return err
}

func writeItems(dir string, data map[string][]byte, items []corev1.KeyToPath) error {
	if items == nil {
		for key := range data {
			items = append(items, corev1.KeyToPath{Key: key, Path: key})
		}
	}
	for _, item := range items {
		value, ok := data[item.Key]
		if !ok {
			return fmt.Errorf("there is no key %q", item.Key)
		}
		path := filepath.Join(dir, item.Path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, value, 0o600)); err != nil {
			return err
		}
	}
	return nil
}

// writeToken writes a token that is bound to the pod, and another one in time.
func (r *podRun) writeToken(path string, p *corev1.ServiceAccountTokenProjection) error {
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: p.ExpirationSeconds,
		BoundObjectRef:    &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: r.pod.Name, UID: r.pod.UID},
	}}
	if p.Audience != "" {
		request.Spec.Audiences = []string{p.Audience}
	}
	accounts := r.runner.stack.clientset.CoreV1().ServiceAccounts(r.pod.Namespace)
	got, err := accounts.CreateToken(r.ctx, r.pod.Spec.ServiceAccountName, request, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("request a token: %w", err)
	}
	next := path + ".next" // a reader never sees half a token
	if err := errors.Join(os.WriteFile(next, []byte(got.Status.Token), 0o600), os.Rename(next, path)); err != nil {
		return err
	}
	left := time.Until(got.Status.ExpirationTimestamp.Time)
	context.AfterFunc(after(r.ctx, left*8/10), func() {
		if r.ctx.Err() == nil {
			_ = r.writeToken(path, p)
		}
	})
	return nil
}

// after returns a context that ends when the time is over or ctx ends.
func after(ctx context.Context, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(ctx, d)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// writeKubeconfig writes what stands for the environment of a pod: client-go looks
// for the token at a fixed path, where it cannot be put.
func (r *podRun) writeKubeconfig() error {
	token := ""
	for _, c := range r.containers {
		if path := r.local(c.spec, tokenFolder+"/token"); path != "" {
			token = path
		}
	}
	if token == "" {
		return nil // automountServiceAccountToken: false
	}
	admin := r.runner.stack.admin
	k := api.NewConfig()
	k.Clusters["pod"] = &api.Cluster{Server: admin.Host, CertificateAuthorityData: admin.CAData}
	k.AuthInfos["pod"] = &api.AuthInfo{TokenFile: token}
	k.Contexts["pod"] = &api.Context{Cluster: "pod", AuthInfo: "pod", Namespace: r.pod.Namespace}
	k.CurrentContext = "pod"
	return clientcmd.WriteToFile(*k, r.kubeconfig())
}

func (r *podRun) kubeconfig() string { return filepath.Join(r.dir, "kubeconfig") }

// local returns where a path of a container is on this machine, "" when it is in
// none of its volumes.
func (r *podRun) local(c *corev1.Container, path string) string {
	for _, m := range c.VolumeMounts {
		mount := strings.TrimSuffix(m.MountPath, "/")
		if rest, ok := strings.CutPrefix(path, mount); ok && (rest == "" || rest[0] == '/') {
			return filepath.Join(r.volume(m.Name), m.SubPath, rest)
		}
	}
	return ""
}
