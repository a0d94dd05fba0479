{{/* 40 characters leave room for the names of orders: a device has 60. It has no dots. */}}
{{- define "gpu-vm.name" -}}
{{- default .Release.Name .Values.name | replace "." "-" | trunc 40 | regexFind "^.*[^-]" -}}
{{- end }}

{{/* They never change, also not by another version of the chart: nobody may change a
device, and a VM whose template changes wants to be restarted. */}}
{{- define "gpu-vm.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{/* What the VM wants, as gpuctl reads it; empty when it wants no GPU. */}}
{{- define "gpu-vm.references" -}}
{{- $devices := list }}
{{- $ordered := list }}
{{- range .Values.gpus.orders }}
{{- $ordered = append $ordered (printf "%s-%s" (include "gpu-vm.name" $) .name) }}
{{- end }}
{{- range concat $ordered .Values.gpus.devices }}
{{- if has . $devices }}
{{- fail (printf "gpus: a device is there twice: %s" .) }}
{{- end }}
{{- $devices = append $devices . }}
{{- end }}
{{- $templates := list }}
{{- range .Values.gpus.templates }}
{{- $templates = append $templates (dict "class" .class "count" (int (default 1 .count))) }}
{{- end }}
{{- if gt (add (len $devices) (len $templates)) 64 }}
{{- fail "gpus: a VM can have 64 devices and templates" }}
{{- end }}
{{- $references := dict }}
{{- if $devices }}{{ $_ := set $references "devices" $devices }}{{ end }}
{{- if $templates }}{{ $_ := set $references "templates" $templates }}{{ end }}
{{- if $references }}{{ $references | toJson }}{{ end }}
{{- end }}
