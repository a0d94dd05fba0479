package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// command returns the container's process, not started.
func (c *container) command(ctx context.Context) (*exec.Cmd, error) {
	b := c.sandbox
	pod := b.latest()
	values, err := c.resolveEnv(ctx, pod)
	if err != nil {
		return nil, err
	}
	local := c.localPaths(pod)
	env := append(c.baseEnv(local), values.list(local)...)
	argv := make([]string, 0, 1+len(c.spec.Command)+len(c.spec.Args))
	for _, word := range c.spec.Command {
		argv = append(argv, expand(word, values.get))
	}
	if len(argv) == 0 {
		argv = append(argv, c.program)
	}
	program := c.inImage(argv[0])
	for _, word := range c.spec.Args {
		argv = append(argv, expand(word, values.get))
	}
	for i := range argv[1:] {
		argv[i+1] = local.rewrite(argv[i+1])
	}
	dir := filepath.Join(b.dir, "home")
	if c.spec.WorkingDir != "" {
		if moved := local.rewrite(c.spec.WorkingDir); moved != c.spec.WorkingDir {
			dir = moved
		}
	}
	return &exec.Cmd{Path: program, Args: argv, Env: env, Dir: dir}, nil
}

// inImage returns the local file for a command of the image, which holds one
// program. Any other command is one that cannot be started.
func (c *container) inImage(command string) string {
	switch path.Base(command) {
	case filepath.Base(c.program), path.Base(repositoryOf(c.spec.Image)):
		return c.program
	}
	return filepath.Join(c.sandbox.dir, "image", command) // which is empty
}

// baseEnv returns what a container's process finds in its environment besides
// what its pod says. Of the test's own, it gets PATH.
func (c *container) baseEnv(local localPaths) []string {
	b := c.sandbox
	s := b.kubelets.stack
	port := fmt.Sprint(s.port(APIServer))
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + filepath.Join(b.dir, "home"), "TMPDIR=" + filepath.Join(b.dir, "tmp"), "HOSTNAME=" + b.name,
		"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=" + port, "KUBERNETES_SERVICE_PORT_HTTPS=" + port,
	}
	if root := s.nodes.root(b.node); root != "" {
		env = append(env, "GPUCTL_HOST_ROOT="+root)
	}
	if account, ok := local.find(accountMount); ok {
		env = append(env, "KUBECONFIG="+c.writeAccountConfig(account))
	}
	return env
}

// accountMount is where pods find the token of their ServiceAccount.
const accountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// writeAccountConfig writes a kubeconfig that says what a client in a pod finds
// in folders which it cannot be told. It reads the token anew as it changes.
func (c *container) writeAccountConfig(account string) string {
	file := filepath.Join(c.sandbox.dir, "containers", c.spec.Name, "kubeconfig")
	if err := writeTokenKubeconfig(file, c.sandbox.kubelets.stack.admin.Host, c.sandbox.namespace, account); err != nil {
		c.sandbox.kubelets.stack.note("kubelets", err)
	}
	return file
}

// repositoryOf returns an image without tag and digest.
func repositoryOf(image string) string {
	repository, _, _ := strings.Cut(image, "@")
	if i := strings.LastIndexByte(repository, ':'); i > strings.LastIndexByte(repository, '/') {
		repository = repository[:i]
	}
	return repository
}

// expand replaces $(NAME) by the value of a variable that exists; $$ stands for
// one $. It does what Kubernetes does to commands, arguments and values.
func expand(text string, get func(string) (string, bool)) string {
	var out strings.Builder
	for {
		before, after, found := strings.Cut(text, "$")
		out.WriteString(before)
		if !found {
			return out.String()
		}
		text = after
		switch {
		case strings.HasPrefix(text, "$"):
			out.WriteByte('$')
			text = text[1:]
		case strings.HasPrefix(text, "("):
			name, rest, closed := strings.Cut(text[1:], ")")
			if !closed {
				out.WriteString("$(")
				text = text[1:]
				continue
			}
			if value, ok := get(name); ok {
				out.WriteString(value)
			} else {
				out.WriteString("$(" + name + ")")
			}
			text = rest
		default:
			out.WriteByte('$')
		}
	}
}

// volumeOf returns a volume of a pod by name.
func volumeOf(pod *corev1.Pod, name string) (corev1.Volume, bool) {
	for _, v := range pod.Spec.Volumes {
		if v.Name == name {
			return v, true
		}
	}
	return corev1.Volume{}, false
}
