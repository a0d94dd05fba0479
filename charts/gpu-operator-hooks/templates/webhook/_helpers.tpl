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

{{- define "gpuctl.webhook.configuration" -}}
webhooks.{{ include "gpuctl.policyName" . }}
{{- end }}

{{- define "gpuctl.webhook.certDir" -}}
/etc/gpuctl-webhook
{{- end }}
