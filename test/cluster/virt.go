package cluster

import (
	"context"
	"crypto/x509/pkix"
	"errors"
	"strconv"
)

// ServiceAccounts of KubeVirt's components.
const (
	operatorAccount   = "kubevirt-operator"
	apiAccount        = "kubevirt-apiserver"
	controllerAccount = "kubevirt-controller"
	handlerAccount    = "kubevirt-handler"
)

// Secrets with the certificates of KubeVirt's components; here also the names
// of their files.
const (
	apiCertificate        = "kubevirt-virt-api-certs"
	handlerCertificate    = "kubevirt-virt-handler-certs"
	controllerCertificate = "kubevirt-controller-certs"
)

// images is where KubeVirt's images would be. None is ever pulled.
const images = "registry.invalid/kubevirt/"

// issueVirtCertificates issues the certificates that virt-operator would.
func (s *stack) issueVirtCertificates(ca *authority) error {
	issue := func(name, subject string, hosts ...string) error {
		p, err := ca.issue(pkix.Name{CommonName: subject}, hosts...)
		if err != nil {
			return err
		}
		return p.write(s.credentials.dir, name)
	}
	return errors.Join(
		issue(apiCertificate, "virt-api.kubevirt.pod.cluster.local", "virt-api.kubevirt.svc", "127.0.0.1"),
		issue(controllerCertificate, "virt-controller.kubevirt.pod.cluster.local", "virt-controller.kubevirt.svc", "127.0.0.1"),
		issue(handlerCertificate, "kubevirt.io:system:client:virt-handler"),
	)
}

// kubeComponents returns kube-controller-manager and kube-scheduler.
func (s *stack) kubeComponents() ([]*component, error) {
	var paths []string
	for _, name := range []string{ControllerManager, Scheduler} {
		config, err := s.credentials.client(s.admin.Host, "system:"+name)
		if err != nil {
			return nil, err
		}
		path := s.dir.file(name + ".kubeconfig")
		if err := writeKubeconfig(path, config); err != nil {
			return nil, err
		}
		paths = append(paths, path)
	}
	return []*component{s.controllerManager(paths[0]), s.scheduler(paths[1])}, nil
}

// virtComponents returns virt-api, which its Service reaches from now on, and
// virt-controller. Their ServiceAccounts and certificates must exist.
func (s *stack) virtComponents(ctx context.Context) ([]*component, error) {
	api, err := s.accountKubeconfig(ctx, apiAccount)
	if err != nil {
		return nil, err
	}
	controller, err := s.accountKubeconfig(ctx, controllerAccount)
	if err != nil {
		return nil, err
	}
	s.egress.expose(KubeVirtNamespace+"/virt-api", loopback(s.port(VirtAPI)))
	version := s.built.versions["kubevirt"]
	return []*component{
		s.virtComponent(VirtAPI, api, "/healthz",
			"--subresources-only",
			"--tls-cert-file="+s.credentials.file(apiCertificate+".crt"), "--tls-key-file="+s.credentials.file(apiCertificate+".key"),
			"--handler-cert-file="+s.credentials.file(handlerCertificate+".crt"), "--handler-key-file="+s.credentials.file(handlerCertificate+".key"),
		),
		s.virtComponent(VirtController, controller, "/leader",
			"--launcher-image="+images+"virt-launcher:"+version, "--exporter-image="+images+"virt-exportserver:"+version,
			"--prom-cert-file="+s.credentials.file(controllerCertificate+".crt"), "--prom-key-file="+s.credentials.file(controllerCertificate+".key"),
		),
	}, nil
}

// virtComponent returns a component of KubeVirt with the flags that all share.
func (s *stack) virtComponent(name, kubeconfig, ready string, args ...string) *component {
	args = append([]string{
		"--kubeconfig=" + kubeconfig, "--listen=127.0.0.1", "--port=" + strconv.Itoa(s.port(name)), "-v=2",
	}, args...)
	return s.component(name, httpOK("https://"+loopback(s.port(name))+ready), args...)
}

// accountKubeconfig writes a kubeconfig for one of KubeVirt's ServiceAccounts.
func (s *stack) accountKubeconfig(ctx context.Context, account string) (string, error) {
	config, err := s.serviceAccountConfig(ctx, KubeVirtNamespace, account)
	if err != nil {
		return "", err
	}
	path := s.dir.file(account + ".kubeconfig")
	return path, writeKubeconfig(path, config)
}
