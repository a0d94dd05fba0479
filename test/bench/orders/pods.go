package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gpuctl/gpuctl/api/v1alpha1"
	"github.com/gpuctl/gpuctl/internal/gpu"
	"github.com/gpuctl/gpuctl/test/bench/fleet"
)

// fillPods makes pods that run: the device plugin's, the agents', and others that have
// nothing to do with GPUs.
func (f *filler) fillPods(ctx context.Context) error {
	sets := []*appsv1.DaemonSet{
		daemonSet("nvidia-sandbox-device-plugin", "nvcr.io/nvidia/kubevirt-gpu-device-plugin:"+gpu.Newest().String(), map[string]string{"app": "nvidia-sandbox-device-plugin"}),
		daemonSet("gpuctl-agent", "ghcr.io/gpuctl/gpuctl:v0.4.0", map[string]string{v1alpha1.LabelPartOf: v1alpha1.PartOf, v1alpha1.LabelComponent: v1alpha1.ComponentAgent}),
	}
	for _, d := range sets {
		if err := f.client.Create(ctx, d); err != nil {
			return err
		}
	}
	return fleet.InParallel(ctx, f.pods, func(ctx context.Context, i int) error {
		pod := webPod(i)
		if set := i / f.nodes; set < len(sets) {
			pod = podOf(sets[set], i)
		}
		pod.Spec.NodeName = fleet.NodeName(i % f.nodes)
		if err := f.client.Create(ctx, pod); err != nil {
			return err
		}
		f.run(pod)
		return f.client.Status().Update(ctx, pod)
	})
}

func daemonSet(name, image string, labels map[string]string) *appsv1.DaemonSet {
	return &appsv1.DaemonSet{
		ObjectMeta: metav1.ObjectMeta{Namespace: fleet.Namespace, Name: name, Labels: labels},
		Spec: appsv1.DaemonSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: image}}},
			},
		},
	}
}

// podOf returns a pod of a DaemonSet.
func podOf(set *appsv1.DaemonSet, i int) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: set.Namespace, Name: fmt.Sprintf("%s-%05d", set.Name, i), Labels: set.Spec.Selector.MatchLabels,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("DaemonSet"))},
		},
		Spec: *set.Spec.Template.Spec.DeepCopy(),
	}
}

// webPod returns a pod of a tenant's web server.
func webPod(i int) *corev1.Pod {
	owner := &metav1.ObjectMeta{Name: "web-7c9f8d6b5", UID: "0b1c2d3e-4f50-4162-8374-95a6b7c8d9e0"}
	memory := resource.MustParse("512Mi")
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: tenantName(i), Name: fmt.Sprintf("web-7c9f8d6b5-%05d", i),
			Labels:          map[string]string{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web", "pod-template-hash": "7c9f8d6b5"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Spec: corev1.PodSpec{Containers: []corev1.Container{{
			Name: "web", Image: "registry.example.com/shop/web:v3.14.1", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}},
			Env: []corev1.EnvVar{
				{Name: "LOG_LEVEL", Value: "info"},
				{Name: "POD_IP", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.podIP"}}},
			},
			Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m"), corev1.ResourceMemory: memory},
				Limits:   corev1.ResourceList{corev1.ResourceMemory: memory},
			},
		}}},
	}
}

// run makes a pod one that runs, as kubelet writes it.
func (f *filler) run(pod *corev1.Pod) {
	name, image := pod.Spec.Containers[0].Name, pod.Spec.Containers[0].Image
	const hash = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
	s := &pod.Status
	s.Phase, s.HostIP, s.PodIP, s.StartTime = corev1.PodRunning, "10.1.2.3", "10.4.5.6", &f.now
	s.HostIPs, s.PodIPs = []corev1.HostIP{{IP: s.HostIP}}, []corev1.PodIP{{IP: s.PodIP}}
	s.Conditions = nil
	for _, kind := range []corev1.PodConditionType{
		corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled,
	} {
		s.Conditions = append(s.Conditions, corev1.PodCondition{Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: f.now})
	}
	started := true
	s.ContainerStatuses = []corev1.ContainerStatus{{
		Name: name, Image: image, ImageID: "registry.example.com/image@sha256:" + hash, ContainerID: "containerd://" + hash, Ready: true, Started: &started,
		State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: f.now}},
	}}
}
