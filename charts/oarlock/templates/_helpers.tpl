{{- define "oarlock.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 50 | trimSuffix "-" -}}
{{- end -}}

{{- /* Release "oarlock" gives "oarlock", release "a" gives "a-oarlock". */ -}}
{{- define "oarlock.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 50 | trimSuffix "-" -}}
{{- else if contains (include "oarlock.name" .) .Release.Name -}}
{{- .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "oarlock.name" .) | trunc 50 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "oarlock.operator" -}}
{{- include "oarlock.fullname" . }}-operator
{{- end -}}

{{- define "oarlock.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "oarlock.operator" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "oarlock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "oarlock.selector" . }}
{{- end -}}

{{- define "oarlock.selector" -}}
app.kubernetes.io/name: {{ include "oarlock.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "oarlock.operatorSelector" -}}
{{ include "oarlock.selector" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "oarlock.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- /* The namespaces that are watched; empty: all. */ -}}
{{- define "oarlock.namespaces" -}}
{{- if eq .Values.rbac.scope "namespaces" -}}
{{- toJson (.Values.rbac.namespaces | default (list .Release.Namespace)) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- /* Not empty: the chart has a ValidatingAdmissionPolicy. By default where the roles are cluster-wide, too. */ -}}
{{- define "oarlock.admissionPolicy" -}}
{{- if ternary (eq .Values.rbac.scope "cluster") .Values.admissionPolicy.enabled (kindIs "invalid" .Values.admissionPolicy.enabled) -}}
true
{{- end -}}
{{- end -}}

{{- /* NetworkPolicy peers that may connect to the metrics ports of all jobs: the operator and the configured scrapers. */ -}}
{{- define "oarlock.jobMetricsPeers" -}}
{{- $operator := dict
      "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace))
      "podSelector" (dict "matchLabels" (include "oarlock.operatorSelector" . | fromYaml)) -}}
{{- toJson (concat (list $operator) .Values.networkPolicy.jobs.metricsFrom) -}}
{{- end -}}

{{- /* What values.schema.json cannot say. */ -}}
{{- define "oarlock.check" -}}
{{- if and (gt (int .Values.replicas) 1) (not .Values.leaderElection.enabled) -}}
{{- fail "replicas: two operators without leaderElection.enabled would both work; enable it, or set replicas: 1" -}}
{{- end -}}
{{- if and .Values.metrics.protect (not .Values.metrics.tls.secretName) -}}
{{- fail "metrics.protect: bearer tokens must not travel in clear text; set metrics.tls.secretName" -}}
{{- end -}}
{{- if and .Values.rbac.namespaces (ne .Values.rbac.scope "namespaces") -}}
{{- fail "rbac.namespaces: is only for rbac.scope: namespaces; set that, or remove the list" -}}
{{- end -}}
{{- if and .Values.networkPolicy.jobs.enabled .Values.metrics.podMonitor.enabled (not .Values.networkPolicy.jobs.metricsFrom) -}}
{{- fail "networkPolicy.jobs: Prometheus could not reach the ranks that metrics.podMonitor selects; set networkPolicy.jobs.metricsFrom" -}}
{{- end -}}
{{- if and .Values.networkPolicy.jobs.metricsFrom (not .Values.networkPolicy.jobs.enabled) -}}
{{- fail "networkPolicy.jobs.metricsFrom: has no effect without networkPolicy.jobs.enabled; set that, or remove the list" -}}
{{- end -}}
{{- with .Values.leaderElection -}}
{{- if not (and (gt (int .leaseDurationSeconds) (int .renewDeadlineSeconds)) (gt (int .renewDeadlineSeconds) (int .retryPeriodSeconds))) -}}
{{- fail "leaderElection: leaseDurationSeconds must be more than renewDeadlineSeconds, and that more than retryPeriodSeconds" -}}
{{- end -}}
{{- end -}}
{{- end -}}
