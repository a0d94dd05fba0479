package cluster

import (
	"context"

	corev1 "k8s.io/api/core/v1"
)

// NotifyPods is called once, with the function to which statuses are told.
func (k *kubelets) NotifyPods(_ context.Context, notify func(*corev1.Pod)) { k.notify = notify }

// CreatePod decides what becomes of a pod that came to a node, and starts it.
func (k *kubelets) CreatePod(ctx context.Context, pod *corev1.Pod) error {
	if !k.stack.nodes.ours(pod.Spec.NodeName) {
		return nil // adopt has it come when its node does
	}
	refused, err := k.lackOfDevices(ctx, pod)
	if err != nil {
		return err
	}
	b := k.newSandbox(pod)
	if !k.keep(b) {
		return nil
	}
	outcome, scripted := k.outcomeOf(pod)
	switch {
	case refused != "":
		b.reject("UnexpectedAdmissionError", refused)
	case scripted && outcome.rejects():
		b.reject(outcome.Reason, outcome.Message)
	case scripted:
		b.play(outcome)
	case b.hasPrograms():
		b.start()
	case isLauncher(pod):
		b.leave()
	case pod.Namespace == KubeVirtNamespace:
		b.leave()
		k.stack.loops.Go(func() {
			if err := k.stack.runPod(k.stack.loopContext, pod); err != nil {
				k.stack.note("kubelets", err)
			}
		})
	default:
		b.play(Outcome{Phase: corev1.PodRunning})
	}
	return nil
}

// UpdatePod takes note of what has changed in a pod.
func (k *kubelets) UpdatePod(_ context.Context, pod *corev1.Pod) error {
	if b := k.sandbox(pod.UID); b != nil {
		b.update(pod)
	}
	return nil
}

// DeletePod begins to end a pod.
func (k *kubelets) DeletePod(_ context.Context, pod *corev1.Pod) error {
	if b := k.sandbox(pod.UID); b != nil {
		b.end(graceOf(pod))
	}
	return nil
}

// GetPod returns what is known of a pod, or nil. A pod that was made anew under
// the same name is another one.
func (k *kubelets) GetPod(_ context.Context, namespace, name string) (*corev1.Pod, error) {
	pod, err := k.pods.Pods(namespace).Get(name)
	if err != nil {
		return nil, nil //nolint:nilerr,nilnil // nil says that there is none
	}
	b := k.sandbox(pod.UID)
	if b == nil {
		return nil, nil //nolint:nilnil // the same
	}
	return b.snapshot(), nil
}

// GetPodStatus returns the status of a pod, or nil.
func (k *kubelets) GetPodStatus(ctx context.Context, namespace, name string) (*corev1.PodStatus, error) {
	pod, err := k.GetPod(ctx, namespace, name)
	if pod == nil {
		return nil, err
	}
	return &pod.Status, nil
}

// GetPods returns nothing: it is asked when the cluster starts.
func (k *kubelets) GetPods(context.Context) ([]*corev1.Pod, error) { return nil, nil }
