{{/* The start of all names: the release, and the chart if the release is called otherwise. */}}
{{- define "qbull.fullname" -}}
{{- if contains "qbull" .Release.Name }}{{ .Release.Name }}{{ else }}{{ .Release.Name }}-qbull{{ end }}
{{- end }}

{{- define "qbull.secret" -}}
{{ .Values.secret.existing | default (include "qbull.fullname" .) }}
{{- end }}

{{- define "qbull.image" -}}
{{ required "image.repository: the image of your application" .Values.image.repository }}:{{ .Values.image.tag | default "latest" }}
{{- end }}

{{/* Labels that choose pods. Called with the root and a component. */}}
{{- define "qbull.selector" -}}
app.kubernetes.io/name: qbull
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end }}

{{- define "qbull.labels" -}}
{{ include "qbull.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{/* What every pod has: its user, a writable /tmp, and nothing else to write to. */}}
{{- define "qbull.podSecurity" -}}
automountServiceAccountToken: false
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  seccompProfile:
    type: RuntimeDefault
{{- with .group.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .group.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "qbull.containerSecurity" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
volumeMounts:
  - name: tmp
    mountPath: /tmp
{{- end }}

{{- define "qbull.volumes" -}}
volumes:
  - name: tmp
    emptyDir:
      medium: Memory
      sizeLimit: 64Mi
{{- end }}

{{- define "qbull.url" -}}
- name: QBULL_URL
  valueFrom:
    secretKeyRef:
      name: {{ include "qbull.secret" . }}
      key: url
{{- end }}

{{- define "qbull.serve" -}}
{{ include "qbull.fullname" . }}-serve
{{- end }}
