package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
	"github.com/gpuctl/gpuctl/test/cluster"
)

// replica is one process of the controller. It has a ServiceAccount of its own, by
// which its requests are told from the other's.
type replica struct {
	name, user string
	cmd        *exec.Cmd
	ended      chan struct{}
}

// replicas are all of them.
type replicas []*replica

// settings have no ports, which the replicas would fight for.
const settings = "metrics: {port: 0}\nhealth: {port: 0}\n"

// grace is what kubelet gives a pod to end.
const grace = 30 * time.Second

// start starts two replicas. One that ends by itself ends the context. Those that
// were started are returned also with an error.
func start(ctx context.Context, c cluster.Running, gpuctl string, cancel context.CancelCauseFunc) (replicas, error) {
	dir := filepath.Dir(c.Kubeconfig)
	config := filepath.Join(dir, "controller.yaml")
	if err := os.WriteFile(config, []byte(settings), 0o600); err != nil {
		return nil, err
	}
	var all replicas
	for i := range 2 {
		r := &replica{name: fmt.Sprintf("%s-%d", v1alpha1.ControllerLease, i), ended: make(chan struct{})}
		// Everything, so that what it may not do does not look as if it did not try.
		everything := rbacv1.PolicyRule{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}
		kubeconfig, user, err := c.ServiceAccount(ctx, fleet.Namespace, r.name, everything)
		if err != nil {
			return all, err
		}
		log, err := os.Create(c.Log(r.name))
		if err != nil {
			return all, err
		}
		r.user = user
		r.cmd = &exec.Cmd{
			Path: gpuctl, Args: []string{gpuctl, "serve", "--kubeconfig", kubeconfig, "--config", config}, Dir: dir, Stdout: log, Stderr: log,
			Env: []string{
				"PATH=" + os.Getenv("PATH"), "HOME=" + dir,
				"POD_NAMESPACE=" + fleet.Namespace, "POD_NAME=" + r.name, fmt.Sprintf("POD_IP=127.0.0.%d", 2+i),
			},
		}
		if err := errors.Join(c.Start(r.cmd), log.Close()); err != nil {
			return all, err
		}
		all = append(all, r)
		go func() {
			_ = r.cmd.Wait() // the state says the same, and "exit status 0" as well
			close(r.ended)
			text, _ := os.ReadFile(log.Name())
			cancel(fmt.Errorf("%s ended by itself: %s; its log ends with:\n%s", r.name, r.cmd.ProcessState, text[max(0, len(text)-2000):]))
		}()
	}
	return all, nil
}

// stop ends all replicas, as kubelet would.
func (all replicas) stop() {
	for _, r := range all {
		_ = r.cmd.Process.Signal(syscall.SIGTERM)
	}
	deadline := time.After(grace)
	for _, r := range all {
		select {
		case <-r.ended:
		case <-deadline:
			fmt.Fprintf(os.Stderr, "idle: %s did not end within %s of SIGTERM\n", r.name, grace)
			_ = r.cmd.Process.Kill()
			<-r.ended
			deadline = time.After(time.Second)
		}
	}
}

// nameOf returns the replica that a user is, or "".
func (all replicas) nameOf(user string) string {
	for _, r := range all {
		if r.user == user {
			return r.name
		}
	}
	return ""
}
