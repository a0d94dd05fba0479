{{/* Whether the controller is rendered. */}}
{{- define "gpuctl.controller.on" -}}
{{- if and (include "gpuctl.on" .) .Values.controller.enabled }}true{{ end -}}
{{- end }}

{{/* Whether it is, and is to be measured. */}}
{{- define "gpuctl.controller.metrics" -}}
{{- if and (include "gpuctl.controller.on" .) .Values.controller.metrics.enabled }}true{{ end -}}
{{- end }}

{{- define "gpuctl.controller.name" -}}
{{ include "gpuctl.fullname" . }}-controller
{{- end }}

{{- define "gpuctl.controller.selectorLabels" -}}
{{ include "gpuctl.selectorLabels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gpuctl.controller.labels" -}}
{{ include "gpuctl.labels" . }}
app.kubernetes.io/component: controller
{{- end }}

{{- define "gpuctl.controller.account" -}}
{{ printf "system:serviceaccount:%s:%s" .Release.Namespace (include "gpuctl.controller.name" .) }}
{{- end }}

{{/* The tenants' namespaces: gpuctl's own is none. */}}
{{- define "gpuctl.tenants" -}}
{{- compact (list .Values.tenants.selector (printf "kubernetes.io/metadata.name!=%s" .Release.Namespace)) | join "," -}}
{{- end }}

{{/* The file that gpuctl serve reads. toYaml quotes what has to be quoted. */}}
{{- define "gpuctl.controller.config" -}}
{{- $c := .Values.controller -}}
{{- $metrics := dict "port" (ternary (int $c.metrics.port) 0 $c.metrics.enabled) -}}
{{- $election := pick $c.leaderElection "leaseDuration" "renewDeadline" "retryPeriod" -}}
{{- $wiring := dict "permit" (include "gpuctl.permits" . | fromJsonArray) "staleAfter" $c.staleAfter "resync" $c.resync -}}
{{- $config := dict "logLevel" $c.logLevel "metrics" $metrics "health" (dict "port" 8081) "leaderElection" $election "wiring" $wiring -}}
{{- if include "gpuctl.orders.on" . -}}
{{- $_ := set $config "orders" (dict "enabled" true "resourceNames" .Values.gpu.resourceNames "tenants" (include "gpuctl.tenants" .) "provider" .Values.tenants.provider) -}}
{{- $webhook := dict "enabled" true "port" (int .Values.webhook.port) -}}
{{- if include "gpuctl.webhook.certManager" . -}}
{{- $_ := set $webhook "certDir" (include "gpuctl.webhook.certDir" .) -}}
{{- else -}}
{{- $_ := merge $webhook (dict "secret" (include "gpuctl.webhook.secret" .) "service" (include "gpuctl.webhook.name" .) "configuration" (include "gpuctl.webhook.configuration" .)) -}}
{{- end -}}
{{- $_ := set $config "webhook" $webhook -}}
{{- end -}}
{{- $config | toYaml -}}
{{- end }}

{{/* Constraints without a selector are about the controller's own pods. */}}
{{- define "gpuctl.controller.spread" -}}
{{- $own := dict "matchLabels" (include "gpuctl.controller.selectorLabels" . | fromYaml) -}}
{{- $spread := list -}}
{{- range .Values.controller.topologySpreadConstraints -}}
{{- $spread = append $spread (ternary . (set (deepCopy .) "labelSelector" $own) (hasKey . "labelSelector")) -}}
{{- end -}}
{{- if $spread }}{{ toYaml $spread }}{{ end -}}
{{- end }}
