package release

import (
	"fmt"
	"strings"
	"time"

	"helm.sh/helm/v3/pkg/kube"
	"k8s.io/cli-runtime/pkg/resource"
)

// narrator tells what Helm is about to do with which objects.
type narrator struct {
	*kube.Client
	say    func(string)
	failed *failedHook
}

// tell says what is done to several objects, or to a namespace. The single objects
// are those of hooks, of which the Job is told when it runs.
func (n *narrator) tell(verb string, resources kube.ResourceList) {
	if len(resources) > 1 || len(resources) == 1 && resources[0].Mapping.GroupVersionKind.Kind == "Namespace" {
		n.say(verb + " " + objects(resources))
	}
}

// Create implements kube.Interface.
func (n *narrator) Create(resources kube.ResourceList) (*kube.Result, error) {
	n.tell("create", resources)
	return n.Client.Create(resources)
}

// Update implements kube.Interface.
func (n *narrator) Update(original, target kube.ResourceList, force bool) (*kube.Result, error) {
	n.say("update " + objects(target))
	return n.Client.Update(original, target, force)
}

// Delete implements kube.Interface.
func (n *narrator) Delete(resources kube.ResourceList) (*kube.Result, []error) {
	n.tell("delete", resources)
	return n.Client.Delete(resources)
}

// Wait implements kube.Interface.
func (n *narrator) Wait(resources kube.ResourceList, timeout time.Duration) error {
	n.say("wait for " + objects(resources))
	return n.Client.Wait(resources, timeout)
}

// WatchUntilReady implements kube.Interface: it waits for a hook.
func (n *narrator) WatchUntilReady(resources kube.ResourceList, timeout time.Duration) error {
	var job string
	for _, r := range resources {
		if r.Mapping.GroupVersionKind.Kind == "Job" {
			n.say("run hook " + object(r))
			job = r.Name
		}
	}
	err := n.Client.WatchUntilReady(resources, timeout)
	if err != nil {
		n.failed.set(job)
	}
	return err
}

// objects names one object, or counts several.
func objects(resources kube.ResourceList) string {
	if len(resources) == 1 {
		return object(resources[0])
	}
	return fmt.Sprintf("%d objects", len(resources))
}

func object(r *resource.Info) string {
	return strings.ToLower(r.Mapping.GroupVersionKind.Kind) + "/" + r.Name
}
