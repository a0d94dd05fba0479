package cluster

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// command returns what is run for the container. It has none of this process's
// environment. Paths of the container in arguments and environment are made local,
// since a process has no file system of its own here.
func (c *containerRun) command() (*exec.Cmd, error) {
	program := c.pod.runner.program(c.spec.Image)
	if program == "" {
		return nil, fmt.Errorf("image %s is not run any more", c.spec.Image)
	}
	env, err := c.environment()
	if err != nil {
		return nil, err
	}
	args := append([]string{program}, c.spec.Args...)
	if len(c.spec.Command) > 0 {
		args = append(append([]string{program}, c.spec.Command[1:]...), c.spec.Args...)
	}
	for i := range args[1:] {
		args[i+1] = c.localize(expand(args[i+1], env))
	}
	r := c.pod
	full := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + r.dir, "TMPDIR=" + filepath.Join(r.dir, "tmp"), "HOSTNAME=" + r.pod.Name}
	if _, err := os.Stat(r.kubeconfig()); err == nil {
		full = append(full, "KUBECONFIG="+r.kubeconfig())
	}
	root := r.runner.root(r.pod.Spec.NodeName)
	if root == "" {
		root = filepath.Join(r.dir, "no-host")
	}
	full = append(full, "GPUCTL_HOST_ROOT="+root)
	for _, e := range env {
		full = append(full, e.name+"="+c.localize(e.value))
	}
	return &exec.Cmd{Path: program, Args: args, Env: full, Dir: r.dir}, nil
}

// variable is one variable of a container's environment.
type variable struct{ name, value string }

func (c *containerRun) environment() ([]variable, error) {
	var env []variable
	for _, e := range c.spec.Env {
		value := expand(e.Value, env)
		if e.ValueFrom != nil {
			var err error
			if value, err = c.valueFrom(e.ValueFrom); err != nil {
				return nil, fmt.Errorf("environment variable %s: %w", e.Name, err)
			}
		}
		env = append(env, variable{e.Name, value})
	}
	if len(c.spec.EnvFrom) > 0 {
		return nil, fmt.Errorf("envFrom is not played")
	}
	return env, nil
}

func (c *containerRun) valueFrom(from *corev1.EnvVarSource) (string, error) {
	r := c.pod
	core := r.runner.stack.clientset.CoreV1()
	switch {
	case from.FieldRef != nil:
		return r.field(from.FieldRef.FieldPath)
	case from.ConfigMapKeyRef != nil:
		cm, err := core.ConfigMaps(r.pod.Namespace).Get(r.ctx, from.ConfigMapKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", unless(from.ConfigMapKeyRef.Optional, err)
		}
		return cm.Data[from.ConfigMapKeyRef.Key], nil
	case from.SecretKeyRef != nil:
		secret, err := core.Secrets(r.pod.Namespace).Get(r.ctx, from.SecretKeyRef.Name, metav1.GetOptions{})
		if err != nil {
			return "", unless(from.SecretKeyRef.Optional, err)
		}
		return string(secret.Data[from.SecretKeyRef.Key]), nil
	}
	return "", fmt.Errorf("this source is not played")
}

var fieldKey = regexp.MustCompile(`^metadata\.(labels|annotations)\['(.+)'\]$`)

// field returns a field of the pod as the downward API does.
func (r *podRun) field(path string) (string, error) {
	if m := fieldKey.FindStringSubmatch(path); m != nil {
		if m[1] == "labels" {
			return r.pod.Labels[m[2]], nil
		}
		return r.pod.Annotations[m[2]], nil
	}
	switch path {
	case "metadata.name":
		return r.pod.Name, nil
	case "metadata.namespace":
		return r.pod.Namespace, nil
	case "metadata.uid":
		return string(r.pod.UID), nil
	case "spec.nodeName":
		return r.pod.Spec.NodeName, nil
	case "spec.serviceAccountName":
		return r.pod.Spec.ServiceAccountName, nil
	case "status.podIP", "status.podIPs":
		return r.ip, nil
	case "status.hostIP", "status.hostIPs":
		return podAddress, nil
	}
	return "", fmt.Errorf("field %s is not played", path)
}

var reference = regexp.MustCompile(`\$\$|\$\([A-Za-z_][A-Za-z0-9_.-]*\)`)

// expand puts variables in the place of "$(NAME)"; "$$" is a dollar sign, and an
// unknown name stays as it is.
func expand(text string, env []variable) string {
	return reference.ReplaceAllStringFunc(text, func(ref string) string {
		if ref == "$$" {
			return "$"
		}
		name := ref[2 : len(ref)-1]
		for _, e := range slices.Backward(env) {
			if e.name == name {
				return e.value
			}
		}
		return ref
	})
}

// localize turns a path of the container, alone or behind "--flag=", into the one
// on this machine.
func (c *containerRun) localize(text string) string {
	head, path := "", text
	if i := strings.IndexByte(text, '='); i >= 0 && strings.HasPrefix(text, "-") {
		head, path = text[:i+1], text[i+1:]
	}
	if path == c.spec.TerminationMessagePath {
		return head + c.terminationLog()
	}
	if local := c.pod.local(c.spec, path); local != "" {
		return head + local
	}
	return text
}

// terminationLog is where the container's termination message is.
func (c *containerRun) terminationLog() string {
	return filepath.Join(c.pod.dir, "termination-"+c.spec.Name)
}
