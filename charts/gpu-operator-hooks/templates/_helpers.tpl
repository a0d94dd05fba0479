{{/* Whether anything is rendered at all: GPUs for virtual machines are wanted. */}}
{{- define "gpuctl.on" -}}
{{- if and .Values.gpu.enabled (ne .Values.gpu.variant "container") }}true{{ end -}}
{{- end }}

{{/* Whether tenants can order: nobody would act on orders without the controller. */}}
{{- define "gpuctl.orders.on" -}}
{{- if and (include "gpuctl.on" .) .Values.orders.enabled }}
{{- if not .Values.controller.enabled }}
{{- fail "orders.enabled: nobody acts on orders without the controller: set controller.enabled=true, or orders.enabled=false" }}
{{- end }}true{{ end -}}
{{- end }}

{{- define "gpuctl.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* 40 characters leave room for suffixes in 63. */}}
{{- define "gpuctl.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "gpuctl.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* Name of what belongs to the whole cluster: releases in two namespaces do not clash. */}}
{{- define "gpuctl.clusterName" -}}
{{- printf "gpuctl:%s:%s" .Release.Namespace (include "gpuctl.fullname" .) -}}
{{- end }}

{{/* The same for kinds whose names are DNS names. */}}
{{- define "gpuctl.policyName" -}}
{{- printf "%s.%s.gpuctl.dev" (include "gpuctl.fullname" .) .Release.Namespace -}}
{{- end }}

{{- define "gpuctl.selectorLabels" -}}
app.kubernetes.io/name: {{ include "gpuctl.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpuctl.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "gpuctl.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: gpuctl
{{- end }}

{{- define "gpuctl.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end -}}
{{- end }}

{{- define "gpuctl.pullSecrets" -}}
{{- $secrets := concat (default (list) .Values.imagePullSecrets) (default (list) (dig "imagePullSecrets" (list) (default (dict) .Values.global))) -}}
{{- if $secrets }}
imagePullSecrets:
{{- range $secrets }}
  - name: {{ if kindIs "string" . }}{{ . }}{{ else }}{{ .name }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{/* What Pod Security "restricted" asks of a pod and of a container. */}}
{{- define "gpuctl.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  runAsUser: 65532
  runAsGroup: 65532
  seccompProfile:
    type: RuntimeDefault
{{- end }}

{{- define "gpuctl.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{/* The explicit pairs, SELECTOR=NAME each, as a JSON list. */}}
{{- define "gpuctl.permits" -}}
{{- $pairs := list }}
{{- range .Values.gpu.permittedHostDevices.pciHostDevices }}
{{- $pairs = append $pairs (printf "%s=%s" .pciVendorSelector .resourceName) }}
{{- end }}
{{- range .Values.gpu.permittedHostDevices.mediatedDevices }}
{{- $pairs = append $pairs (printf "%s=%s" .mdevNameSelector .resourceName) }}
{{- end }}
{{- $pairs | toJson }}
{{- end }}
