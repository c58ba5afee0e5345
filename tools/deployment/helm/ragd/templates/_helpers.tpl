{{- define "ragd.labels" -}}
app.kubernetes.io/name: ragd
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end }}

{{- define "ragd.selector" -}}
app.kubernetes.io/name: ragd
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What every pod has: an account without rights, a read-only root, writable folders in memory or on the node. */}}
{{- define "ragd.pod" -}}
automountServiceAccountToken: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
volumes:
  - {name: var, emptyDir: {}}
  - {name: tmp, emptyDir: {}}
{{- end }}

{{- define "ragd.container" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag }}"
imagePullPolicy: {{ .Values.image.pullPolicy | default "IfNotPresent" }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - secretRef: {name: {{ .Values.secretName }}}
  - configMapRef: {name: {{ .Release.Name }}}
volumeMounts:
  - {name: var, mountPath: /opt/ragd/var}
  - {name: tmp, mountPath: /tmp}
{{- end }}
