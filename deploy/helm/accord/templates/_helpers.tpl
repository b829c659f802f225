{{- define "accord.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "accord.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains (include "accord.name" .) .Release.Name -}}
{{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "accord.name" .) | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "accord.selector" -}}
app.kubernetes.io/name: {{ include "accord.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "accord.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{ include "accord.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}

{{- define "accord.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "accord.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- default "default" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "accord.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{- define "accord.storeSecret" -}}
{{- if .Values.store.existingSecret -}}
{{- .Values.store.existingSecret -}}
{{- else -}}
{{- printf "%s-store" (include "accord.fullname" .) -}}
{{- end -}}
{{- end -}}

{{- define "accord.container" -}}
image: {{ include "accord.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
env:
  - name: ACCORD_STORE
    valueFrom:
      secretKeyRef:
        name: {{ include "accord.storeSecret" . }}
        key: {{ .Values.store.key }}
  - name: ACCORD_SERVER__HOST
    value: "0.0.0.0"
  - name: ACCORD_SERVER__PORT
    value: "8000"
  - name: ACCORD_SERVER__BEHIND_PROXY
    value: "true"
  - name: ACCORD_SERVER__TRUSTED_PROXIES
    value: {{ join "," .Values.trustedProxies | quote }}
  - name: ACCORD_SERVER__DRAIN_SECONDS
    value: {{ .Values.drainSeconds | quote }}
  - name: ACCORD_SERVER__GRACE_SECONDS
    value: {{ .Values.graceSeconds | quote }}
  {{- if .Values.url }}
  - name: ACCORD_SERVER__URL
    value: {{ .Values.url | quote }}
  {{- end }}
  {{- with .Values.env }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- with .Values.envFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
volumeMounts:
  - name: config
    mountPath: /etc/accord
    readOnly: true
  - name: data
    mountPath: /data
  - name: tmp
    mountPath: /tmp
{{- end -}}
