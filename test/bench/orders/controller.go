package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/charts"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
	testcluster "github.com/gpuctl/gpuctl/test/cluster"
)

const (
	controllerName = charts.GPUOperatorHooks + "-controller"
	webhookService = charts.GPUOperatorHooks + "-webhook"
	localhost      = "127.0.0.1"
	// startPatience is how long a controller may take to be ready, and to lead.
	startPatience = 10 * time.Minute
	grace         = 30 * time.Second
)

// controller is a process that runs as a pod of the chart's controller would: with the
// account, the settings and the environment that the chart gives it.
type controller struct {
	cmd     *exec.Cmd
	ended   chan struct{}
	began   time.Time
	webhook string // where it answers: "127.0.0.1:20007"
	health  string
	log     string
}

// install installs the chart, which has nobody to run its pods here.
func install(ctx context.Context, c testcluster.Running, gpuctl string) error {
	cmd := exec.CommandContext(ctx, gpuctl, "install", "--kubeconfig", c.Kubeconfig, "-n", fleet.Namespace,
		"--set", "hook.enabled=false,agent.enabled=false,crds.enabled=false,orders.enabled=true")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(c.Kubeconfig)}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("install the chart: %w: %s", err, output)
	}
	return nil
}

// start starts a controller, and waits until it is ready and leads. One that ends by
// itself ends the context. It is returned also with an error, if it was started.
func start(ctx context.Context, cancel context.CancelCauseFunc, c testcluster.Running, admin client.Client, gpuctl string) (*controller, error) {
	var settings corev1.ConfigMap
	var deployment appsv1.Deployment
	key := client.ObjectKey{Namespace: fleet.Namespace, Name: controllerName}
	if err := errors.Join(admin.Get(ctx, key, &settings), admin.Get(ctx, key, &deployment)); err != nil {
		return nil, err
	}
	config := filepath.Join(filepath.Dir(c.Kubeconfig), "controller.yaml")
	if err := os.WriteFile(config, []byte(settings.Data["config.yaml"]), 0o600); err != nil {
		return nil, err
	}
	kubeconfig, _, err := c.ServiceAccount(ctx, fleet.Namespace, controllerName) // the chart has bound its roles
	if err != nil {
		return nil, err
	}
	var ports []string
	for range 3 {
		ports = append(ports, strconv.Itoa(c.Port()))
	}
	p := &controller{ended: make(chan struct{}), webhook: net.JoinHostPort(localhost, ports[0]), health: net.JoinHostPort(localhost, ports[1]), log: c.Log(controllerName)}
	c.Expose(fleet.Namespace+"/"+webhookService, p.webhook)
	log, err := os.Create(p.log)
	if err != nil {
		return nil, err
	}
	p.cmd = &exec.Cmd{
		Path: gpuctl, Dir: filepath.Dir(config), Stdout: log, Stderr: log,
		Args: []string{
			gpuctl, "serve", "--kubeconfig", kubeconfig, "--config", config,
			"--webhook-port", ports[0], "--health-port", ports[1], "--metrics-port", ports[2],
		},
		Env: []string{
			"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Dir(config),
			"POD_NAMESPACE=" + fleet.Namespace, "POD_NAME=" + controllerName + "-0", "POD_IP=" + localhost,
			fmt.Sprintf("POD_MEMORY_LIMIT=%d", deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()),
		},
	}
	p.began = time.Now()
	if err := errors.Join(c.Start(p.cmd), log.Close()); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait() // the state says the same, and "exit status 0" as well
		close(p.ended)
		text, _ := os.ReadFile(p.log)
		cancel(fmt.Errorf("the controller ended by itself: %s; its log ends with:\n%s", p.cmd.ProcessState, text[max(0, len(text)-2000):]))
	}()
	err = p.awaitReady(ctx, admin)
	return p, err
}

// awaitReady waits until it leads, and would get calls.
func (p *controller) awaitReady(ctx context.Context, admin client.Client) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, startPatience, true, func(ctx context.Context) (bool, error) {
		last = errors.Join(p.isReady(ctx), isLed(ctx, admin))
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("the controller is not ready: %w", errors.Join(context.Cause(ctx), last))
	}
	return nil
}

func (p *controller) isReady(ctx context.Context) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+p.health+"/readyz", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("it says %s: %s", resp.Status, &body)
	}
	return errors.Join(err, resp.Body.Close())
}

func isLed(ctx context.Context, admin client.Client) error {
	lease := &coordinationv1.Lease{}
	if err := admin.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: v1alpha1.ControllerLease}, lease); err != nil {
		return err
	}
	if lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" {
		return errors.New("nobody leads")
	}
	return nil
}

// stop ends it, as kubelet would.
func (p *controller) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.ended:
	case <-time.After(grace):
		fmt.Fprintf(os.Stderr, "orders: the controller did not end within %s of SIGTERM\n", grace)
		_ = p.cmd.Process.Kill()
		<-p.ended
	}
}
