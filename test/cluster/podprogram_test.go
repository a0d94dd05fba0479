package cluster_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// asProgram is the variable that makes the test binary the program of an image.
const asProgram = "GPUCTL_POD_PROGRAM"

// programImage is the image that the test binary is.
const programImage = "registry.invalid:5000/tests/program"

// runProgram has the test binary run as programImage. The arguments say what it
// does: see podProgram.
func runProgram(t *testing.T, c *cluster.Cluster) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c.RunImage(programImage, self)
}

// podSpec returns the spec of a pod with one container of programImage.
func podSpec(policy, more string, args ...string) string {
	list, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	return fmt.Sprintf(`{restartPolicy: %s, terminationGracePeriodSeconds: 5, containers: [{name: main, image: "%s:v1", args: %s, %s
    env: [{name: %s, value: "1"}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}},
          {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}]}]}`, policy, programImage, list, more, asProgram)
}

// podProgram does what its arguments say, one after the other.
func podProgram(args []string) error {
	for _, arg := range args {
		verb, object, _ := strings.Cut(arg, "=")
		do, ok := map[string]func(string) error{
			"say": say, "message": writeMessage, "identity": writeIdentity, "describe": describe,
			"fail-once": failOnce, "serve": serve, "hang": hang, "exit": exit,
		}[verb]
		if !ok {
			return fmt.Errorf("unknown verb %q", verb)
		}
		if err := do(object); err != nil {
			return err
		}
	}
	return nil
}

func say(text string) error {
	_, err := fmt.Println(text)
	return err
}

// writeMessage writes to "file:text".
func writeMessage(object string) error {
	path, text, _ := strings.Cut(object, ":")
	return os.WriteFile(path, []byte(text), 0o600)
}

func exit(code string) error {
	n := 0
	if _, err := fmt.Sscan(code, &n); err != nil {
		return err
	}
	os.Exit(n)
	return nil
}

// hostFile returns a file of the node.
func hostFile(name string) string { return filepath.Join(os.Getenv("GPUCTL_HOST_ROOT"), name) }

// failOnce fails the first time on a node.
func failOnce(string) error {
	if _, err := os.Stat(hostFile("tried")); err == nil {
		return nil
	}
	if err := os.WriteFile(hostFile("tried"), nil, 0o600); err != nil {
		return err
	}
	return fmt.Errorf("failed on %s", os.Getenv("NODE_NAME"))
}

// identity is what a pod knows about itself, and what the API server does.
type identity struct {
	Node, User, TokenNode, TokenPod string
}

func writeIdentity(string) error {
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(clientcmd.NewDefaultClientConfigLoadingRules(), nil).ClientConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	user := review.Status.UserInfo
	first := func(key string) string { return strings.Join(user.Extra["authentication.kubernetes.io/"+key], ",") }
	return writeJSON(hostFile("identity"), identity{
		Node: os.Getenv("NODE_NAME"), User: user.Username, TokenNode: first("node-name"), TokenPod: first("pod-name"),
	})
}

// surroundings is what a process finds around it.
type surroundings struct {
	Args  []string
	Env   map[string]string
	Files map[string]string
}

// describe writes the surroundings to "file", after those files were read whose
// paths are in FILES.
func describe(path string) error {
	s := surroundings{Args: os.Args[1:], Env: map[string]string{}, Files: map[string]string{}}
	for _, e := range os.Environ() {
		name, value, _ := strings.Cut(e, "=")
		s.Env[name] = value
	}
	for file := range strings.FieldsSeq(os.Getenv("FILES")) {
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		s.Files[filepath.Base(file)] = string(data)
	}
	return writeJSON(path, s)
}

func writeJSON(path string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, data, 0o600)
}

// hang ends by SIGKILL only.
func hang(string) error {
	signal.Ignore(syscall.SIGTERM)
	fmt.Println("hanging")
	time.Sleep(time.Hour)
	return nil
}

// serve answers until SIGTERM. Its two checks fail while the node has a file
// "not-ready" or "not-healthy".
func serve(string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	mux := http.NewServeMux()
	for _, check := range []string{"ready", "healthy"} {
		mux.HandleFunc("GET /"+check, func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(hostFile("not-" + check)); err == nil {
				http.Error(w, "not "+check, http.StatusServiceUnavailable)
			}
		})
	}
	l, err := net.Listen("tcp", net.JoinHostPort(os.Getenv("POD_IP"), "8081"))
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mux} //nolint:gosec // for a test
	context.AfterFunc(ctx, func() { _ = server.Close() })
	fmt.Println("serving on " + os.Getenv("NODE_NAME"))
	_ = server.Serve(l)
	fmt.Println("told to end")
	return nil
}

// isProgram runs the test binary as a program, if it is one.
func isProgram() bool {
	if os.Getenv(asProgram) == "" {
		return false
	}
	if err := podProgram(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	return true
}
