package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gpuctl/gpuctl/test/cluster"
)

const podImage = "registry.example/test/program"

// podProgram is what the pods of these tests run: this test binary itself.
func podProgram(args []string) int {
	switch args[0] {
	case "who": // says who the API server takes it for, and goes on
		who, err := whoAmI()
		fmt.Println(os.Getenv("NODE_NAME"), os.Getenv("GPUCTL_HOST_ROOT"), who, err)
		select {}
	case "fail-once": // fails unless it has been here before
		if _, err := os.Stat(args[1]); err == nil {
			return 0
		}
		return errorCode(os.WriteFile(args[1], nil, 0o600), os.WriteFile(args[2], []byte("not yet"), 0o600))
	case "serve": // is well, and ready once a file is there
		ready := func(w http.ResponseWriter, _ *http.Request) {
			if _, err := os.Stat(args[1]); err != nil {
				http.Error(w, "not ready", http.StatusServiceUnavailable)
			}
		}
		return errorCode(http.ListenAndServe(net.JoinHostPort(os.Getenv("POD_IP"), "8080"), http.HandlerFunc(ready))) //nolint:gosec // a test's
	case "linger": // takes its time to end
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
		defer stop()
		fmt.Println("waiting")
		<-ctx.Done()
		time.Sleep(time.Second)
		fmt.Println("bye")
	}
	return 0
}

func errorCode(errs ...error) int {
	if err := errors.Join(errs...); err != nil {
		fmt.Println(err)
	}
	return 3
}

func whoAmI() (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	got, err := client.AuthenticationV1().SelfSubjectReviews().Create(context.Background(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	u := got.Status.UserInfo
	return fmt.Sprint(u.Username, u.Extra["authentication.kubernetes.io/node-name"], u.Extra["authentication.kubernetes.io/pod-name"]), nil
}

// podStage makes two nodes for a test and has the pods of the image run there. It
// returns a namespace for them.
func podStage(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ns := c.Namespace()
	for _, node := range []string{"a", "b"} {
		c.AddNode(cluster.Node{Name: ns + "-" + node, Labels: map[string]string{"stage": ns}, Root: "/roots/" + node})
	}
	c.RunImage(podImage, self)
	return ns
}

// template returns a pod template in YAML that runs the program with the given
// arguments on the test's nodes.
func podTemplate(ns, args, more string) string {
	return fmt.Sprintf(`{metadata: {labels: {app: x}}, spec: {nodeSelector: {stage: %s}, terminationGracePeriodSeconds: 5, containers: [{name: main, image: %s:v1, args: %s,
  env: [{name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}, {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}]%s}]`, ns, podImage, args, more)
}

func podsOf(c *cluster.Cluster, ns string) ([]corev1.Pod, error) {
	list, err := c.Clientset().CoreV1().Pods(ns).List(context.Background(), metav1.ListOptions{LabelSelector: "app=x"})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// A DaemonSet has one process on each node, with a token that says so.
func TestDaemonSetRuns(t *testing.T) {
	c := shared.For(t)
	ns := podStage(t, c)
	c.Create(c.Decode(`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: ` + ns + `}, spec: {selector: {matchLabels: {app: x}}, template: ` +
		podTemplate(ns, "[who]", "") + `}}}}`))
	c.Eventually(soon, "both pods are ready", func(ctx context.Context) error {
		set, err := c.Clientset().AppsV1().DaemonSets(ns).Get(ctx, "d", metav1.GetOptions{})
		if err != nil || set.Status.NumberReady != 2 {
			return fmt.Errorf("%+v: %w", set.Status, err)
		}
		return nil
	})
	pods, err := podsOf(c, ns)
	if err != nil || len(pods) != 2 {
		t.Fatalf("%d pods: %v", len(pods), err)
	}
	for i := range pods {
		pod := &pods[i]
		node := pod.Spec.NodeName
		want := fmt.Sprintf("%s /roots/%s system:serviceaccount:%s:default[%s] [%s] <nil>", node, strings.TrimPrefix(node, ns+"-"), ns, node, pod.Name)
		c.Eventually(soon, "the process has said who it is", func(context.Context) error {
			got, err := os.ReadFile(c.PodLog(pod, "main"))
			if err != nil || strings.TrimSpace(string(got)) != want {
				return fmt.Errorf("it says %q, want %q: %w", got, want, err)
			}
			return nil
		})
	}
	logs, err := c.Clientset().CoreV1().Pods(ns).GetLogs(pods[0].Name, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil || !strings.Contains(string(logs), pods[0].Name) {
		t.Errorf("the API server gives the log %q, %v", logs, err)
	}
	// One that is killed is started again.
	c.KillPod(&pods[0])
	c.Eventually(soon, "the killed container runs again", func(ctx context.Context) error {
		pod, err := c.Clientset().CoreV1().Pods(ns).Get(ctx, pods[0].Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		s := pod.Status.ContainerStatuses[0]
		if s.RestartCount != 1 || s.State.Running == nil || s.LastTerminationState.Terminated == nil || s.LastTerminationState.Terminated.ExitCode != 137 {
			return fmt.Errorf("%+v", s)
		}
		return nil
	})
}

// A Job's failed pod is followed by another one; its message is on its status.
func TestJobIsTriedAgain(t *testing.T) {
	c := shared.For(t)
	ns := podStage(t, c)
	mark := t.TempDir() + "/mark"
	c.Create(c.Decode(`{apiVersion: batch/v1, kind: Job, metadata: {name: j, namespace: ` + ns + `}, spec: {backoffLimit: 2, template: ` +
		podTemplate(ns, "[fail-once, "+mark+", /dev/termination-log]", "") + `, restartPolicy: Never}}}}`))
	c.Eventually(time.Minute, "the Job is complete", func(ctx context.Context) error {
		job, err := c.Clientset().BatchV1().Jobs(ns).Get(ctx, "j", metav1.GetOptions{})
		if err != nil || job.Status.Succeeded != 1 || job.Status.Failed != 1 {
			return fmt.Errorf("%+v: %w", job.Status, err)
		}
		return nil
	})
	pods, err := podsOf(c, ns)
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, pod := range pods {
		if s := pod.Status.ContainerStatuses[0].State.Terminated; s != nil && s.ExitCode != 0 {
			messages = append(messages, fmt.Sprint(s.ExitCode, " ", s.Message))
		}
	}
	if len(pods) != 2 || len(messages) != 1 || messages[0] != "3 not yet" {
		t.Errorf("%d pods, messages %q", len(pods), messages)
	}
}

func TestReadinessProbe(t *testing.T) {
	c := shared.For(t)
	ns := podStage(t, c)
	mark := t.TempDir() + "/ready"
	c.Create(c.Decode(`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: ` + ns + `}, spec: {selector: {matchLabels: {app: x}}, template: ` +
		podTemplate(ns, "[serve, "+mark+"]", ", ports: [{name: http, containerPort: 8080}], readinessProbe: {httpGet: {path: /, port: http}, periodSeconds: 1}") + `}}}}`))
	ready := func(want int32) func(context.Context) error {
		return func(ctx context.Context) error {
			d, err := c.Clientset().AppsV1().Deployments(ns).Get(ctx, "d", metav1.GetOptions{})
			if err != nil || d.Status.ReadyReplicas != want || d.Status.Replicas != 1 {
				return fmt.Errorf("%+v: %w", d.Status, err)
			}
			return nil
		}
	}
	c.Eventually(soon, "the pod runs", func(context.Context) error {
		pods, err := podsOf(c, ns)
		if err != nil || len(pods) != 1 || pods[0].Status.Phase != corev1.PodRunning {
			return fmt.Errorf("pods %v: %w", pods, err)
		}
		return nil
	})
	c.Always(2*time.Second, "it is not ready", ready(0))
	if err := os.WriteFile(mark, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	c.Eventually(soon, "it is ready", ready(1))
}

// A deleted pod ends by itself if it does so in time.
func TestDeletionGrace(t *testing.T) {
	c := shared.For(t)
	ns := podStage(t, c)
	pod := &corev1.Pod{}
	c.Create(c.Decode(`{apiVersion: v1, kind: Pod, ` + strings.Replace(strings.TrimPrefix(podTemplate(ns, "[linger]", ""), "{"), "metadata: {", "metadata: {name: p, namespace: "+ns+", ", 1) + `}}`))
	c.Eventually(soon, "the process waits", func(ctx context.Context) (err error) {
		if pod, err = c.Clientset().CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{}); err != nil {
			return err
		}
		log, err := os.ReadFile(c.PodLog(pod, "main"))
		if !strings.Contains(string(log), "waiting") {
			return fmt.Errorf("its log is %q: %w", log, err)
		}
		return nil
	})
	if err := c.Clientset().CoreV1().Pods(ns).Delete(t.Context(), "p", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	c.Eventually(soon, "the pod is gone", func(ctx context.Context) error {
		got, err := c.Clientset().CoreV1().Pods(ns).Get(ctx, "p", metav1.GetOptions{})
		if err == nil {
			return fmt.Errorf("it is %s", got.Status.Phase)
		}
		return nil
	})
	log, err := os.ReadFile(c.PodLog(pod, "main"))
	if err != nil || !strings.HasSuffix(string(log), "bye\n") {
		t.Errorf("its log is %q, %v", log, err)
	}
}

// Pods of other images run nothing; a test says what becomes of them.
func TestScript(t *testing.T) {
	c := shared.For(t)
	ns := c.Namespace()
	c.AddNode(cluster.Node{Name: ns, Labels: map[string]string{"stage": ns}})
	outcomes := map[string]cluster.Outcome{
		"runs": cluster.Runs(), "succeeds": cluster.Succeeds(), "fails": cluster.Fails(7, "broken"),
		"rejected": cluster.Rejected("no device"), "not-pulled": cluster.NotPulled(), "left": {},
	}
	c.Script(func(pod *corev1.Pod) cluster.Outcome { return outcomes[pod.Name] })
	want := map[string]string{
		"runs": "Running  ", "succeeds": "Succeeded  ", "fails": "Failed  7 broken",
		"rejected": "Failed UnexpectedAdmissionError ", "not-pulled": "Pending  ImagePullBackOff", "left": "Pending  ",
	}
	for name := range outcomes {
		c.Create(c.Decode(`{apiVersion: v1, kind: Pod, metadata: {name: ` + name + `, namespace: ` + ns + `}, spec: {nodeSelector: {stage: ` + ns + `}, containers: [{name: main, image: other}]}}`))
	}
	for name := range outcomes {
		c.Eventually(soon, "pod "+name+" is as the script says", func(ctx context.Context) error {
			pod, err := c.Clientset().CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			got := fmt.Sprintf("%s %s ", pod.Status.Phase, pod.Status.Reason)
			for _, s := range pod.Status.ContainerStatuses {
				switch {
				case s.State.Terminated != nil && s.State.Terminated.ExitCode != 0:
					got += fmt.Sprint(s.State.Terminated.ExitCode, " ", s.State.Terminated.Message)
				case s.State.Waiting != nil:
					got += s.State.Waiting.Reason
				}
			}
			if got != want[name] || pod.Spec.NodeName == "" {
				return fmt.Errorf("it is %q, want %q", got, want[name])
			}
			return nil
		})
	}
}
