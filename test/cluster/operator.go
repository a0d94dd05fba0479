package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// operatorWebhooks is where virt-operator serves its webhooks. It takes no flag
// for that, so there can be one virt-operator on a machine.
const operatorWebhooks = "127.0.0.1:8444"

// infraNode is the node of KubeVirt's own pods, which only run where
// a control plane does. No launcher pod can go there.
const infraNode = "infra"

// lockOperator waits until no other cluster on this machine has a virt-operator.
func (s *stack) lockOperator(ctx context.Context, progress io.Writer) error {
	l, err := lock(ctx, filepath.Join(os.TempDir(), "gpuctl-virt-operator.lock"), func() {
		fmt.Fprintln(progress, "cluster: waiting for another cluster with a virt-operator to stop")
	})
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l.unlock)
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", operatorWebhooks)
	if err != nil {
		return fmt.Errorf("find the port of virt-operator free: %w", err)
	}
	return listener.Close()
}

// runOperator installs virt-operator, which installs KubeVirt. Its pods are on
// nodes that run nothing, so virt-api and virt-controller are started here, with
// the certificates that virt-operator issued.
func (s *stack) runOperator(ctx context.Context) error {
	m, err := readManifests(s.built.files["manifests.json"])
	if err != nil {
		return err
	}
	if err := s.createBase(ctx, m.Operator); err != nil {
		return err
	}
	kube, err := s.kubeComponents()
	if err != nil {
		return err
	}
	if err := s.serve(ctx, kube...); err != nil {
		return err
	}
	if err := s.startKubelets(); err != nil {
		return err
	}
	err = s.addNode(ctx, Node{Name: infraNode, Labels: map[string]string{
		"node-role.kubernetes.io/control-plane": "", "kubevirt.io/schedulable": "false",
	}})
	if err != nil {
		return fmt.Errorf("add node %q: %w", infraNode, err)
	}
	operator, err := s.virtOperator(ctx)
	if err != nil {
		return err
	}
	if err := operator.start(s.launcher); err != nil {
		return err
	}
	kv := newKubeVirt(map[string]any{"infra": map[string]any{"replicas": int64(1)}, "configuration": map[string]any{}})
	if err := create(ctx, s.dynamic, []unstructured.Unstructured{*kv}); err != nil {
		return err
	}
	if err := s.runInstalled(ctx); err != nil {
		return fmt.Errorf("%w\n%s's log ends with:\n%s", err, VirtOperator, tail(operator.log))
	}
	return s.finish(ctx)
}

func (s *stack) virtOperator(ctx context.Context) (*component, error) {
	kubeconfig, err := s.accountKubeconfig(ctx, operatorAccount)
	if err != nil {
		return nil, err
	}
	s.egress.expose(KubeVirtNamespace+"/kubevirt-operator-webhook", operatorWebhooks)
	c := s.virtComponent(VirtOperator, kubeconfig, "/metrics")
	version := s.built.versions["kubevirt"]
	// What virt-operator's Deployment would set.
	c.env = append(c.env, "VIRT_OPERATOR_IMAGE="+images+VirtOperator+":"+version, "KUBEVIRT_VERSION="+version)
	metrics := c.ready
	c.ready = func(ctx context.Context) error {
		if err := metrics(ctx); err != nil {
			return err
		}
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", operatorWebhooks)
		if err != nil {
			return err
		}
		return conn.Close()
	}
	return c, nil
}

// runInstalled waits for what virt-operator installs, runs it, and waits until
// virt-operator is content.
func (s *stack) runInstalled(ctx context.Context) error {
	for _, name := range []string{apiCertificate, handlerCertificate, controllerCertificate} {
		err := poll(ctx, func(ctx context.Context) error {
			secret, err := s.clientset.CoreV1().Secrets(KubeVirtNamespace).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			p := pair{cert: secret.Data["tls.crt"], key: secret.Data["tls.key"]}
			if len(p.cert) == 0 || len(p.key) == 0 {
				return fmt.Errorf("secret %s holds no certificate yet", name)
			}
			return p.write(s.credentials.dir, name)
		})
		if err != nil {
			return err
		}
	}
	var virt []*component
	err := poll(ctx, func(ctx context.Context) (err error) {
		virt, err = s.virtComponents(ctx)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.serve(ctx, virt...); err != nil {
		return err
	}
	return poll(ctx, s.deployed)
}

// deployed checks that virt-operator says that KubeVirt is deployed.
func (s *stack) deployed(ctx context.Context) error {
	kv, err := s.kubeVirts().Get(ctx, KubeVirtNamespace, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if phase, _, _ := unstructured.NestedString(kv.Object, "status", "phase"); phase != "Deployed" || !hasCondition(kv, "Available") {
		return fmt.Errorf("KubeVirt is %q", phase)
	}
	return nil
}

// runPod plays a pod of KubeVirt's own: the one that computes what to install
// does so, all others just run.
func (s *stack) runPod(ctx context.Context, pod *corev1.Pod) error {
	container := pod.Spec.Containers[0]
	if !slices.Equal(container.Command, []string{VirtOperator, "--dump-install-strategy"}) {
		return s.setPodPhase(ctx, pod, corev1.PodRunning)
	}
	cmd := exec.CommandContext(ctx, s.built.files[VirtOperator],
		append(container.Command[1:], "--kubeconfig="+s.dir.file(operatorAccount+".kubeconfig"))...)
	cmd.Env = append(os.Environ(), "TMPDIR="+s.dir.temp())
	for _, e := range container.Env {
		cmd.Env = append(cmd.Env, e.Name+"="+e.Value)
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := s.launcher.start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		err = fmt.Errorf("run pod %s: %w: %s", pod.Name, err, out.String())
		return errors.Join(err, s.setPodPhase(ctx, pod, corev1.PodFailed))
	}
	return s.setPodPhase(ctx, pod, corev1.PodSucceeded)
}
