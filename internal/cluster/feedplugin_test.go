package cluster

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gpuctl/gpuctl/internal/gpu"
)

// Who may make a DaemonSet in a namespace of its own says nothing about the plugin of the
// nodes.
func TestPluginOfATenant(t *testing.T) {
	f := newTestFeed()
	f.nodeEvents().put(nil, stored(t, `{apiVersion: v1, kind: Node, metadata: {name: n1}, status: {conditions: [{type: Ready, status: "True"}]}}`))
	f.podEvents().put(nil, heldPod(decodeInto[corev1.Pod](t, pluginPod)))
	f.pluginEvents().put(nil, heldDaemonSet(decodeInto[appsv1.DaemonSet](t, `{metadata: {name: plugin, namespace: gpus, uid: set}, spec: {template: {spec: {containers: [{image: "x/kubevirt-gpu-device-plugin:v1.4.0"}]}}}}`)))
	f.pluginEvents().put(nil, heldDaemonSet(decodeInto[appsv1.DaemonSet](t, `{metadata: {name: mine, namespace: tenant, uid: mine}, spec: {template: {spec: {containers: [{image: "x/kubevirt-gpu-device-plugin:v9.9.9"}]}}}}`)))
	f.podEvents().put(nil, heldPod(decodeInto[corev1.Pod](t, `{metadata: {name: mine-x, namespace: tenant, uid: y, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: mine, uid: mine, controller: true}]},
		spec: {nodeName: n1, containers: [{image: "x/kubevirt-gpu-device-plugin:v9.9.9"}]}, status: {phase: Pending}}`)))
	if got := f.nodes.of("n1").Facts.Plugin; got != (gpu.Release{Major: 1, Minor: 4}) {
		t.Errorf("the node's plugin is taken for %v", got)
	}
}
