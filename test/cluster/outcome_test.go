package cluster_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuctl/gpuctl/test/cluster"
)

// Pods of other images run nothing; a script says what becomes of them.
func TestOutcomes(t *testing.T) {
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "scripted"})
	ns := c.Namespace()
	cases := map[string]struct {
		outcome cluster.Outcome
		want    string
	}{
		"unscripted": {want: "Running  ready=true"},
		"running":    {outcome: cluster.Outcome{Phase: corev1.PodRunning}, want: "Running  ready=true"},
		"succeeds":   {outcome: cluster.Outcome{Phase: corev1.PodSucceeded}, want: "Succeeded  ready=false 0 Completed "},
		"fails":      {outcome: cluster.Outcome{Phase: corev1.PodFailed, ExitCode: 3, Message: "no"}, want: "Failed  ready=false 3 Error no"},
		"not-pulled": {outcome: cluster.Outcome{Phase: corev1.PodPending}, want: "Pending  ready=false ImagePullBackOff"},
		"rejected": {
			outcome: cluster.Outcome{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Pod was rejected: no"},
			want:    "Failed UnexpectedAdmissionError ready=false",
		},
	}
	c.Script(func(pod *corev1.Pod) cluster.Outcome {
		if pod.Namespace != ns {
			return cluster.Outcome{}
		}
		return cases[pod.Name].outcome
	})
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			c := shared.For(t)
			pod := newPod(c, ns, name, onNode("scripted", "{restartPolicy: Never, containers: [{name: main, image: other}]}"))
			c.Eventually(soon, "the pod is as scripted", func(context.Context) error {
				got := getPod(t, c, pod)
				text := fmt.Sprintf("%s %s ready=%t", got.Status.Phase, got.Status.Reason, isReady(got))
				if s := got.Status.ContainerStatuses[0].State; s.Terminated != nil {
					text += fmt.Sprintf(" %d %s %s", s.Terminated.ExitCode, s.Terminated.Reason, s.Terminated.Message)
				} else if s.Waiting != nil {
					text += " " + s.Waiting.Reason
				}
				return errOf(cmp.Diff(tc.want, text))
			})
		})
	}
}

// A launcher pod that is scripted to run has its VMI run.
func TestScriptedLauncherRuns(t *testing.T) {
	const gpu = "nvidia.com/SCRIPTED"
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "launches", Resources: map[corev1.ResourceName]int64{gpu: 1}})
	ns := c.Namespace()
	c.Script(func(pod *corev1.Pod) cluster.Outcome {
		if pod.Namespace != ns {
			return cluster.Outcome{}
		}
		return cluster.Outcome{Phase: corev1.PodRunning}
	})
	u := c.Create(vmi(c, ns, "scripted", "gpus", gpu))
	c.Eventually(soon, "the VMI runs", says(c, u, "Running", phase))
}

// kubelet refuses a pod whose devices have failed since it was scheduled, or that
// was not scheduled.
func TestLackOfDevicesIsRefused(t *testing.T) {
	const gpu = "nvidia.com/LACKED"
	c := shared.For(t)
	c.AddNode(cluster.Node{Name: "lacks", Resources: map[corev1.ResourceName]int64{gpu: 1}})
	ns := c.Namespace()
	spec := "{nodeName: lacks, containers: [{name: main, image: other, resources: {limits: {" + gpu + ": 1}}}]}"
	first := newPod(c, ns, "first", spec)
	c.Eventually(soon, "the first runs", phaseIs(t, c, first, corev1.PodRunning))
	second := newPod(c, ns, "second", spec)
	c.Eventually(soon, "the second has failed", phaseIs(t, c, second, corev1.PodFailed))
	got := getPod(t, c, second)
	const want = "requested number of devices unavailable for " + gpu + ". Requested: 1, Available: 0"
	if got.Status.Reason != "UnexpectedAdmissionError" || !strings.Contains(got.Status.Message, want) {
		t.Errorf("got %s: %s", got.Status.Reason, got.Status.Message)
	}
}

// The API server hands out the logs of processes: all, the end, of the run before.
func TestLogs(t *testing.T) {
	c := shared.For(t)
	runProgram(t, c)
	c.AddNode(cluster.Node{Name: "logs", Root: t.TempDir()})
	ns := c.Namespace()
	pod := newPod(c, ns, "logs", onNode("logs", podSpec("OnFailure", "", "say=one", "fail-once", "say=two")))
	c.Eventually(soon, "it has succeeded", phaseIs(t, c, pod, corev1.PodSucceeded))
	lines := int64(1)
	for name, tc := range map[string]struct {
		options corev1.PodLogOptions
		want    string
	}{
		"all":      {want: "one\ntwo\n"},
		"tail":     {options: corev1.PodLogOptions{TailLines: &lines}, want: "two\n"},
		"followed": {options: corev1.PodLogOptions{Follow: true}, want: "one\ntwo\n"},
		"previous": {options: corev1.PodLogOptions{Previous: true}, want: "one\nfailed on logs\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Clientset().CoreV1().Pods(ns).GetLogs("logs", &tc.options).DoRaw(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func errOf(diff string) error {
	if diff == "" {
		return nil
	}
	return errors.New(diff)
}
