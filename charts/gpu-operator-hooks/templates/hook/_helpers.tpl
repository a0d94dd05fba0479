{{/* Whether the hook is rendered. */}}
{{- define "gpuctl.hook.on" -}}
{{- if and (include "gpuctl.on" .) .Values.hook.enabled }}true{{ end -}}
{{- end }}

{{/* What the hook's account needs is there before its Job and goes with it: the
rights exist only while the hook runs. */}}
{{- define "gpuctl.hook.annotations" -}}
helm.sh/hook: post-install,post-upgrade,pre-delete
helm.sh/hook-weight: "-5"
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded,hook-failed
{{- end }}

{{- define "gpuctl.hook.labels" -}}
{{ include "gpuctl.labels" . }}
app.kubernetes.io/component: hook
{{- end }}

{{- define "gpuctl.hook.account" -}}
{{ printf "system:serviceaccount:%s:%s-hook" .Release.Namespace (include "gpuctl.fullname" .) }}
{{- end }}

{{/* --permit for each explicit pair. */}}
{{- define "gpuctl.hook.permits" -}}
{{- range include "gpuctl.permits" . | fromJsonArray }}
- {{ printf "--permit=%s" . | quote }}
{{- end }}
{{- end }}

{{/* A Job of the hook: a dict of root, job (its name), hook, deadline (seconds) and
args (YAML). */}}
{{- define "gpuctl.hook.job" -}}
{{- $ := .root -}}
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ .job }}
  namespace: {{ $.Release.Namespace }}
  labels:
    {{- include "gpuctl.hook.labels" $ | nindent 4 }}
  annotations:
    helm.sh/hook: {{ .hook }}
    helm.sh/hook-weight: "5"
    # It stays for an hour, so that its log can be read.
    helm.sh/hook-delete-policy: before-hook-creation
    helm.sh/hook-output-log-policy: hook-failed
spec:
  activeDeadlineSeconds: {{ .deadline }}
  ttlSecondsAfterFinished: 3600
  # What fails is not tried again: gpuctl has done so itself. What is killed is.
  backoffLimit: 3
  podFailurePolicy:
    rules:
      - action: Ignore
        onPodConditions:
          - type: DisruptionTarget
      - action: FailJob
        onExitCodes:
          containerName: wire
          operator: In
          values: [1, 2, 124]
  template:
    metadata:
      labels:
        {{- include "gpuctl.selectorLabels" $ | nindent 8 }}
        app.kubernetes.io/component: hook
        app.kubernetes.io/part-of: gpuctl
      {{- with $.Values.hook.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      restartPolicy: Never
      serviceAccountName: {{ include "gpuctl.fullname" $ }}-hook
      {{- include "gpuctl.pullSecrets" $ | nindent 6 }}
      {{- include "gpuctl.podSecurity" $ | nindent 6 }}
      enableServiceLinks: false
      {{- with $.Values.hook.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $.Values.hook.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: wire
          image: {{ include "gpuctl.image" $ }}
          imagePullPolicy: {{ $.Values.image.pullPolicy }}
          args:
            - wire
            {{- .args | nindent 12 }}
            - --event
            - --termination-log=/dev/termination-log
          env:
            - name: POD_NAMESPACE
              valueFrom:
                fieldRef:
                  fieldPath: metadata.namespace
            # The wait counts from the start of the Job, not of a pod.
            - name: HOOK_JOB
              value: {{ .job }}
            - name: HOOK_RELEASE
              value: {{ $.Release.Name }}
            - name: HOOK_REVISION
              value: {{ $.Release.Revision | quote }}
          terminationMessagePath: /dev/termination-log
          terminationMessagePolicy: FallbackToLogsOnError
          {{- with $.Values.hook.resources }}
          resources:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- include "gpuctl.containerSecurity" $ | nindent 10 }}
{{- end }}
