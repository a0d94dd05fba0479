package webhook

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	kubevirt "kubevirt.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gpuctl/gpuctl/internal/diagnose"
)

// LaunchersPath is where the webhook for launchers is served.
const LaunchersPath = "/mutate-v1-pod"

// Claims hands devices to VMIs that are stored; [attach.Starter] does. It is called
// concurrently.
type Claims interface {
	// Claim returns the node where the VMI's launcher has to run.
	Claim(ctx context.Context, namespace, vmi string, uid types.UID, dry bool) (node string, err error)
}

// Launchers returns the webhook that claims a VMI's devices when its launcher is made,
// and binds the launcher to their node. isKubeVirt says whether a user is
// virt-controller.
func Launchers(claims Claims, isKubeVirt func(user string) bool, log logr.Logger) http.Handler {
	return &admission.Webhook{Handler: &launchers{claims, isKubeVirt, log}}
}

type launchers struct {
	claims     Claims
	isKubeVirt func(user string) bool
	log        logr.Logger
}

// Handle claims, and binds.
func (h *launchers) Handle(ctx context.Context, req admission.Request) admission.Response {
	if req.Operation != admissionv1.Create || req.SubResource != "" {
		return admission.Allowed("")
	}
	pod := &corev1.Pod{}
	q := inquiry{h.log, "pod in " + req.Namespace, &req.AdmissionRequest}
	if err := utiljson.Unmarshal(req.Object.Raw, pod); err != nil {
		return q.refuse(fmt.Errorf("decode a Pod: %w", err))
	}
	q.object = "Pod " + req.Namespace + "/" + pod.Name + pod.GenerateName
	var node string
	err := q.judged(ctx, func(ctx context.Context) (err error) {
		node, err = h.claim(ctx, q.object, pod, &req.AdmissionRequest)
		return err
	})
	if err != nil {
		return q.refuse(err)
	}
	changed, err := pin(req.Object.Raw, node)
	if err != nil {
		return q.refuse(err)
	}
	return admission.PatchResponseFromRaw(req.Object.Raw, changed)
}

// claim claims for the VMI that a pod is the launcher of.
func (h *launchers) claim(ctx context.Context, object string, pod *corev1.Pod, req *admissionv1.AdmissionRequest) (string, error) {
	owner := metav1.GetControllerOf(pod)
	if !h.isKubeVirt(req.UserInfo.Username) || owner == nil || owner.Kind != "VirtualMachineInstance" || owner.APIVersion != kubevirt.GroupVersion.String() {
		return "", diagnose.ForeignLauncher(object, req.UserInfo.Username)
	}
	if _, target := pod.Labels[kubevirt.MigrationJobLabel]; target {
		return "", diagnose.MigrationTarget(object, owner.Name)
	}
	return h.claims.Claim(ctx, req.Namespace, owner.Name, owner.UID, dry(req))
}

// pin binds a pod to a node: in each of its required terms, for one of them is enough
// to match. A term that says nothing matches no node, and is left so.
func pin(raw []byte, node string) ([]byte, error) {
	o := map[string]any{}
	if err := utiljson.Unmarshal(raw, &o); err != nil {
		return nil, err
	}
	at := o
	for _, key := range []string{"spec", "affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution"} {
		if at[key] == nil {
			at[key] = map[string]any{}
		}
		next, ok := at[key].(map[string]any)
		if !ok {
			return nil, fmt.Errorf("read the pod's node affinity: %s is a %T", key, at[key])
		}
		at = next
	}
	terms, _ := at["nodeSelectorTerms"].([]any)
	if len(terms) == 0 {
		terms = []any{map[string]any{}}
		bind(terms[0].(map[string]any), node)
	}
	for _, t := range terms {
		if term, ok := t.(map[string]any); ok && says(term, "matchExpressions")+says(term, "matchFields") > 0 {
			bind(term, node)
		}
	}
	at["nodeSelectorTerms"] = terms
	return json.Marshal(o)
}

func says(term map[string]any, key string) int {
	list, _ := term[key].([]any)
	return len(list)
}

// bind adds the node's name to a term, once.
func bind(term map[string]any, node string) {
	want := map[string]any{"key": metav1.ObjectNameField, "operator": string(corev1.NodeSelectorOpIn), "values": []any{node}}
	fields, _ := term["matchFields"].([]any)
	if !slices.ContainsFunc(fields, func(f any) bool { return reflect.DeepEqual(f, want) }) {
		term["matchFields"] = append(fields, want)
	}
}
