package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"sync"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// bareLists are the lists of gpuctl status, the long ones first.
func bareLists() []string {
	return []string{
		"/apis/kubevirt.io/v1/virtualmachineinstances",
		"/api/v1/pods?fieldSelector=status.phase!%3DSucceeded",
		"/apis/kubevirt.io/v1/virtualmachines",
		"/api/v1/nodes",
		"/apis/gpuctl.dev/v1alpha1/gpunodes",
		"/api/v1/events?fieldSelector=type%3DWarning",
		"/api/v1/events?fieldSelector=involvedObject.kind%3DKubeVirt",
		"/apis/coordination.k8s.io/v1/leases?labelSelector=app.kubernetes.io/part-of%3Dgpuctl",
		"/apis/coordination.k8s.io/v1/leases?fieldSelector=metadata.name%3Dgpuctl-controller",
		"/apis/apps/v1/daemonsets",
		"/apis/apps/v1/deployments?labelSelector=app.kubernetes.io/part-of%3Dgpuctl",
		"/apis/gpuctl.dev/v1alpha1/gpuwirings",
		"/apis/kubevirt.io/v1/kubevirts",
		"/apis/kubevirt.io/v1/virtualmachineinstancereplicasets",
		"/apis/kubevirt.io/v1/virtualmachineinstancepresets",
		"/apis/pool.kubevirt.io/v1beta1/virtualmachinepools",
		"/apis/instancetype.kubevirt.io/v1beta1/virtualmachineinstancetypes",
		"/apis/instancetype.kubevirt.io/v1beta1/virtualmachineclusterinstancetypes",
	}
}

// barePage is how many objects a page has.
const barePage = 2500

// listBare does what any client has to do that shows what gpuctl status shows: it
// lists the same kinds in the same pages. It reads no object, only where the next
// page is.
func listBare(ctx context.Context, kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	lists := bareLists()
	errs := make([]error, len(lists))
	var all sync.WaitGroup
	for i := range lists {
		all.Go(func() { errs[i] = listAll(ctx, client.CoreV1().RESTClient(), lists[i]) })
	}
	all.Wait()
	return errors.Join(errs...)
}

func listAll(ctx context.Context, client rest.Interface, list string) error {
	at, err := url.Parse(list)
	if err != nil {
		return err
	}
	for next := ""; ; {
		get := client.Get().AbsPath(at.Path).SetHeader("Accept", "application/json").Param("limit", strconv.Itoa(barePage))
		for key := range at.Query() {
			get.Param(key, at.Query().Get(key))
		}
		if next != "" {
			get.Param("continue", next)
		}
		body, err := get.Do(ctx).Raw()
		if err != nil {
			return err
		}
		if next, err = continueOf(body); err != nil || next == "" {
			return err
		}
	}
}

// continueOf reads the metadata of a list: they are the first in the text of a list
// of pods, and the last in that of a custom resource.
func continueOf(body []byte) (string, error) {
	var metadata struct {
		Continue string `json:"continue"`
	}
	key := []byte(`"metadata":`)
	at := bytes.Index(body, key)
	if items := bytes.Index(body, []byte(`"items":`)); items >= 0 && items < at {
		at = bytes.LastIndex(body, key)
	}
	if at < 0 {
		return "", errors.New("a list without metadata")
	}
	err := json.NewDecoder(bytes.NewReader(body[at+len(key):])).Decode(&metadata)
	return metadata.Continue, err
}
