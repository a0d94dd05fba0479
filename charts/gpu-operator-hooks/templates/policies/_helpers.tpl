{{/* A policy's binding, in all namespaces: a dict of root and name. */}}
{{- define "gpuctl.policy.binding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {{ .name }}
  labels:
    {{- include "gpuctl.labels" .root | nindent 4 }}
spec:
  policyName: {{ .name }}
  validationActions: [Deny]
{{- end }}

{{/* virt-controller's user names, as a CEL list. */}}
{{- define "gpuctl.policy.virtControllers" -}}
{{- $names := list }}
{{- range .Values.kubevirt.namespaces }}
{{- $names = append $names (printf "'system:serviceaccount:%s:kubevirt-controller'" .) }}
{{- end }}
{{- printf "[%s]" (join ", " $names) }}
{{- end }}
