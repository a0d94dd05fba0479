{{/* Whether the webhooks are rendered: the controller's pods serve them, for orders. */}}
{{- define "gpuctl.webhook.on" -}}
{{- if include "gpuctl.orders.on" . }}
{{- if and .Values.controller.metrics.enabled (eq (int .Values.controller.metrics.port) (int .Values.webhook.port)) }}
{{- fail (printf "webhook.port: %d is controller.metrics.port as well: set another one" (int .Values.webhook.port)) }}
{{- end }}true{{ end -}}
{{- end }}

{{/* Whether cert-manager keeps their certificate. */}}
{{- define "gpuctl.webhook.certManager" -}}
{{- if and (include "gpuctl.webhook.on" .) .Values.webhook.certManager.enabled }}true{{ end -}}
{{- end }}

{{/* Service, Certificate and Issuer. */}}
{{- define "gpuctl.webhook.name" -}}
{{ include "gpuctl.fullname" . }}-webhook
{{- end }}

{{/* The Secret of the certificate: gpuctl's own, or cert-manager's. */}}
{{- define "gpuctl.webhook.secret" -}}
{{ include "gpuctl.webhook.name" . }}-{{ ternary "tls" "cert" .Values.webhook.certManager.enabled }}
{{- end }}

{{/* The two configurations. Mutating webhooks are called in the order of these names: ours
after KubeVirt's (virt-api-mutator), which changes each VMI: ours need not be asked twice. */}}
{{- define "gpuctl.webhook.configuration" -}}
virtualmachines.{{ include "gpuctl.policyName" . }}
{{- end }}

{{- define "gpuctl.webhook.certDir" -}}
/etc/gpuctl-webhook
{{- end }}

{{/* What both configurations are called, and who writes whom they trust. */}}
{{- define "gpuctl.webhook.metadata" -}}
name: {{ include "gpuctl.webhook.configuration" . }}
labels:
  {{- include "gpuctl.controller.labels" . | nindent 2 }}
{{- if include "gpuctl.webhook.certManager" . }}
annotations:
  cert-manager.io/inject-ca-from: {{ .Release.Namespace }}/{{ include "gpuctl.webhook.name" . }}
{{- end }}
{{- end }}

{{/* How a webhook is called, and for which namespaces: a dict of root and path. The
caBundle is written by cert-manager or by the controller. */}}
{{- define "gpuctl.webhook.call" -}}
admissionReviewVersions: [v1]
clientConfig:
  service:
    name: {{ include "gpuctl.webhook.name" .root }}
    namespace: {{ .root.Release.Namespace }}
    path: {{ .path }}
    port: 443
namespaceSelector:
  matchExpressions:
    - key: kubernetes.io/metadata.name
      operator: NotIn
      values: {{ list "kube-system" "kube-public" "kube-node-lease" .root.Release.Namespace | uniq | toJson }}
failurePolicy: Fail
matchPolicy: Equivalent
{{- end }}

{{/* VMIs that name devices, as they are made. */}}
{{- define "gpuctl.webhook.instances" -}}
rules:
  - apiGroups: [kubevirt.io]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [virtualmachineinstances]
    scope: Namespaced
objectSelector:
  matchLabels:
    gpuctl.dev/device-reference: "true"
{{- end }}
