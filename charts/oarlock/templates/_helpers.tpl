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
{{- required "serviceAccount.name is required if serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end -}}

{{- define "oarlock.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name (.Chart.Version | replace "+" "_") }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{ include "oarlock.selector" . }}
{{- end -}}

{{- define "oarlock.selector" -}}
app.kubernetes.io/name: {{ include "oarlock.name" . | toYaml }}
app.kubernetes.io/instance: {{ toYaml .Release.Name }}
{{- end -}}

{{- define "oarlock.operatorSelector" -}}
{{ include "oarlock.selector" . }}
app.kubernetes.io/component: operator
{{- end -}}

{{- /*
Metadata of an object. dict: root; name; optionally namespace, component, labels and annotations.
Labels of the chart precede those of the object, and these precede commonLabels.
*/ -}}
{{- define "oarlock.metadata" -}}
{{- include "oarlock.checkRemoved" .root -}}
name: {{ toYaml .name }}
{{- with .namespace }}
namespace: {{ toYaml . }}
{{- end }}
{{- $labels := include "oarlock.labels" .root | fromYaml }}
{{- with .component }}
{{- $_ := set $labels "app.kubernetes.io/component" . }}
{{- end }}
labels:
  {{- merge $labels (.labels | default dict) (.root.Values.commonLabels | default dict) | toYaml | nindent 2 }}
{{- with merge dict (.annotations | default dict) (.root.Values.commonAnnotations | default dict) }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Annotations of an object of `helm test`. dict: weight. A failed job is kept for inspection. */ -}}
{{- define "oarlock.testAnnotations" -}}
helm.sh/hook: test
helm.sh/hook-weight: {{ .weight | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end -}}

{{- /*
Reference of an image. dict: root; image (registry, repository, tag, digest); value: the name of the image in values.yaml;
registry and tag: their defaults. A repository may name its registry itself.
*/ -}}
{{- define "oarlock.imageReference" -}}
{{- $global := dig "imageRegistry" "" (.root.Values.global | default dict) -}}
{{- $registry := $global | default .image.registry | default .registry -}}
{{- $repository := .image.repository -}}
{{- if regexMatch "^([^/]*[.:][^/]*|localhost)/" $repository -}}
{{- if or $global (ne $registry .registry) -}}
{{- fail (printf "%s.repository: '%s' contains a registry, and %s is set as well; remove one of them" .value $repository (ternary "global.imageRegistry" (printf "%s.registry" .value) (ne $global ""))) -}}
{{- end -}}
{{- else -}}
{{- $repository = printf "%s/%s" $registry $repository -}}
{{- end -}}
{{- if .image.digest -}}
{{ $repository }}@{{ .image.digest }}
{{- else -}}
{{ $repository }}:{{ .image.tag | default .tag }}
{{- end -}}
{{- end -}}

{{- define "oarlock.image" -}}
{{- include "oarlock.imageReference" (dict "root" . "image" .Values.image "value" "image" "registry" "docker.io" "tag" .Chart.AppVersion) -}}
{{- end -}}

{{- define "oarlock.trainerImage" -}}
{{- $reference := include "oarlock.imageReference" (dict "root" . "image" .Values.trainerImage "value" "trainerImage" "registry" "docker.io" "tag" .Chart.AppVersion) -}}
{{- $default := include "oarlock.imageReference" (dict "root" . "image" (dict "repository" "oarlock/trainer") "registry" "docker.io" "tag" .Chart.AppVersion) -}}
{{- (include "oarlock.renamed" (dict "root" . "old" "tests.trainerImage" "new" "trainerImage" "value" $reference "default" $default) | fromJson).value -}}
{{- end -}}

{{- /* Empty: jobs get no launcher. Its registry is by default that of the trainer's image, or else of the operator's. */ -}}
{{- define "oarlock.launcherImage" -}}
{{- if .Values.launcher.enabled -}}
{{- $host := "^([^/]*[.:][^/]*|localhost)/" -}}
{{- $registry := regexFind $host (include "oarlock.trainerImage" .) | trimSuffix "/" -}}
{{- if has $registry (list "" "docker.io") -}}
{{- $registry = regexFind $host (include "oarlock.image" .) | trimSuffix "/" -}}
{{- end -}}
{{- include "oarlock.imageReference" (dict "root" . "image" .Values.launcher.image "value" "launcher.image" "registry" ($registry | default "docker.io") "tag" .Chart.AppVersion) -}}
{{- end -}}
{{- end -}}

{{- define "oarlock.kubectlImage" -}}
{{- $image := .Values.tests.kubectl.image -}}
{{- $reference := include "oarlock.imageReference" (dict "root" . "image" $image "value" "tests.kubectl.image" "registry" "registry.k8s.io" "tag" "v1.35.4") -}}
{{- $default := include "oarlock.imageReference" (dict "root" . "image" (dict "repository" "kubectl" "tag" "v1.35.4") "registry" "registry.k8s.io") -}}
{{- (include "oarlock.renamed" (dict "root" . "old" "tests.kubectlImage" "new" "tests.kubectl.image" "value" $reference "default" $default) | fromJson).value -}}
{{- end -}}

{{- /* The field imagePullSecrets of a pod, without duplicates; nothing if there are none. */ -}}
{{- define "oarlock.imagePullSecrets" -}}
{{- $own := (include "oarlock.renamed" (dict "root" . "old" "image.pullSecrets" "new" "imagePullSecrets" "value" .Values.imagePullSecrets "default" list) | fromJson).value -}}
{{- $secrets := list -}}
{{- range concat (dig "imagePullSecrets" list (.Values.global | default dict) | default list) ($own | default list) -}}
{{- $secrets = append $secrets (ternary . (dict "name" .) (kindIs "map" .)) -}}
{{- end -}}
{{- with uniq $secrets -}}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /* Not empty: users and groups are left to the cluster, as OpenShift requires. */ -}}
{{- define "oarlock.clusterAssignsUsers" -}}
{{- $adapt := dig "compatibility" "openshift" "adaptSecurityContext" "auto" (.Values.global | default dict) -}}
{{- if or (eq $adapt "force") (and (eq $adapt "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
true
{{- end -}}
{{- end -}}

{{- /* The field securityContext; nothing if it has no field. dict: root, context. */ -}}
{{- define "oarlock.securityContext" -}}
{{- $context := .context | default dict -}}
{{- if include "oarlock.clusterAssignsUsers" .root -}}
{{- $context = omit $context "runAsUser" "runAsGroup" "fsGroup" -}}
{{- end -}}
{{- $fields := dict -}}
{{- range $name, $value := $context -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $fields $name $value -}}{{- end -}}
{{- end -}}
{{- with $fields -}}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end -}}
{{- end -}}

{{- /*
JSON {"value": ...} of a renamed value. dict: root; old and new: the paths; value: that of the new path; default: its default.
The old name applies while the new one has its default. An explicit value cannot be distinguished from the default.
*/ -}}
{{- define "oarlock.renamed" -}}
{{- $old := include "oarlock.valueOf" . | fromJson -}}
{{- if $old.given -}}
{{- if and (ne (toJson .value) (toJson .default)) (ne (toJson .value) (toJson $old.value)) -}}
{{- fail (printf "%s: was renamed to %s, and both are set, to %s and %s; remove %s" .old .new (toJson $old.value) (toJson .value) .old) -}}
{{- end -}}
{{- toJson (dict "value" $old.value) -}}
{{- else -}}
{{- toJson (dict "value" .value) -}}
{{- end -}}
{{- end -}}

{{- /* JSON {"given": ..., "value": ...} of a deprecated value. dict: root, old. Its default of earlier charts was empty. */ -}}
{{- define "oarlock.valueOf" -}}
{{- $value := .root.Values.AsMap -}}
{{- range splitList "." .old -}}
{{- $value = ternary $value dict (kindIs "map" $value) -}}
{{- $value = index $value . -}}
{{- end -}}
{{- toJson (dict "given" (or (kindIs "float64" $value) (kindIs "int64" $value) (not (empty $value))) "value" $value) -}}
{{- end -}}

{{- define "oarlock.replicaCount" -}}
{{- (include "oarlock.renamed" (dict "root" . "old" "replicas" "new" "replicaCount" "value" .Values.replicaCount "default" 1) | fromJson).value -}}
{{- end -}}

{{- /* JSON {"value": [...]} of extraArgs and extraEnv. */ -}}
{{- define "oarlock.extraArgs" -}}
{{- include "oarlock.renamed" (dict "root" . "old" "operator.extraArgs" "new" "extraArgs" "value" .Values.extraArgs "default" list) -}}
{{- end -}}
{{- define "oarlock.extraEnv" -}}
{{- include "oarlock.renamed" (dict "root" . "old" "operator.extraEnv" "new" "extraEnv" "value" .Values.extraEnv "default" list) -}}
{{- end -}}

{{- /* Names of values of earlier charts, and their replacements. */ -}}
{{- define "oarlock.deprecatedNames" -}}
replicas: replicaCount
image.pullSecrets: imagePullSecrets
operator.extraArgs: extraArgs
operator.extraEnv: extraEnv
tests.trainerImage: trainerImage
tests.kubectlImage: tests.kubectl.image
{{- end -}}

{{- /*
The names of the CRDs of the chart that the cluster has and kubectl or another release manages, separated by spaces. Helm
would reject the release.
*/ -}}
{{- define "oarlock.foreignCrds" -}}
{{- $root := . -}}
{{- $foreign := list -}}
{{- range $path, $_ := .Files.Glob "files/oarlock.dev_*.yaml" -}}
{{- $crd_name := ($root.Files.Get $path | fromYaml).metadata.name -}}
{{- with lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" $crd_name -}}
{{- $owner := .metadata.annotations | default dict -}}
{{- $name := index $owner "meta.helm.sh/release-name" | default "" -}}
{{- $namespace := index $owner "meta.helm.sh/release-namespace" | default "" -}}
{{- if or (ne $name $root.Release.Name) (ne $namespace $root.Release.Namespace) -}}
{{- $foreign = append $foreign $crd_name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- join " " $foreign -}}
{{- end -}}

{{- /* The namespaces that are watched; empty: all. */ -}}
{{- define "oarlock.namespaces" -}}
{{- if eq .Values.rbac.scope "namespaces" -}}
{{- toJson (.Values.rbac.namespaces | default (list .Release.Namespace)) -}}
{{- else -}}
[]
{{- end -}}
{{- end -}}

{{- /* Not empty: the chart has a ValidatingAdmissionPolicy. By default if the roles are cluster-wide. */ -}}
{{- define "oarlock.admissionPolicy" -}}
{{- $enabled := (.Values.admissionPolicy).enabled -}}
{{- if ternary (eq .Values.rbac.scope "cluster") $enabled (kindIs "invalid" $enabled) -}}
true
{{- end -}}
{{- end -}}

{{- /* NetworkPolicy peers that may connect to the metrics ports of all jobs: the operator and the configured scrapers. */ -}}
{{- define "oarlock.jobMetricsPeers" -}}
{{- $operator := dict
      "namespaceSelector" (dict "matchLabels" (dict "kubernetes.io/metadata.name" .Release.Namespace))
      "podSelector" (dict "matchLabels" (include "oarlock.operatorSelector" . | fromYaml)) -}}
{{- toJson (concat (list $operator) (.Values.networkPolicy.jobs.metricsFrom | default list)) -}}
{{- end -}}

{{- /* Rejects values without which the objects would be invalid. Helm removes a value that is null before it applies the schema. */ -}}
{{- define "oarlock.checkRemoved" -}}
{{- if not (hasKey .Values "replicaCount") -}}
{{- fail "replicaCount: is missing, as in the values of an earlier chart; upgrade with --reset-then-reuse-values instead of --reuse-values" -}}
{{- end -}}
{{- include "oarlock.requireValues" (dict "root" . "names" (list "image.repository" "trainerImage.repository" "launcher.image.repository" "leaderElection"
      "operator.workers" "operator.progressIntervalSeconds" "operator.logLevel" "operator.logFormat" "rbac.scope" "queues.kueue" "queues.gangs" "serviceAccount" "crds"
      "metrics.port" "metrics.tls" "metrics.service" "metrics.serviceMonitor" "metrics.podMonitor" "dashboards" "networkPolicy.jobs" "healthPort" "tests.kubectl.image.repository")) -}}
{{- if .Values.leaderElection.enabled -}}
{{- include "oarlock.requireValues" (dict "root" . "names" (list "leaderElection.leaseDurationSeconds" "leaderElection.renewDeadlineSeconds" "leaderElection.retryPeriodSeconds")) -}}
{{- end -}}
{{- if ((.Values.metrics).tls).secretName -}}
{{- include "oarlock.requireValues" (dict "root" . "names" (list "metrics.tls.key")) -}}
{{- end -}}
{{- if ((.Values.metrics).prometheusRule).enabled -}}
{{- include "oarlock.requireValues" (dict "root" . "names" (list "metrics.prometheusRule.runbookBaseUrl")) -}}
{{- end -}}
{{- if include "oarlock.admissionPolicy" . -}}
{{- include "oarlock.requireValues" (dict "root" . "names" (list "admissionPolicy.excludedNamespaces")) -}}
{{- end -}}
{{- end -}}

{{- /* Fails if one of the values `names` is missing. */ -}}
{{- define "oarlock.requireValues" -}}
{{- $root := .root -}}
{{- range .names -}}
{{- $value := $root.Values.AsMap -}}
{{- range splitList "." . -}}
{{- $value = ternary $value dict (kindIs "map" $value) -}}
{{- $value = index $value . -}}
{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- fail (printf "%s: has no value: null removes the default, and --reuse-values keeps the defaults of the old chart; set one, or upgrade with --reset-then-reuse-values" .) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Rules between values, which values.schema.json cannot express. */ -}}
{{- define "oarlock.check" -}}
{{- include "oarlock.checkRemoved" . -}}
{{- if and (gt (int (include "oarlock.replicaCount" .)) 1) (not .Values.leaderElection.enabled) -}}
{{- fail "replicaCount: two operators without leaderElection.enabled would both work; enable it, or set replicaCount: 1" -}}
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
{{- if not (or .Values.fullnameOverride (regexMatch "^[-a-z0-9.]*$" (include "oarlock.name" .))) -}}
{{- fail (printf "the name of the Deployment would be '%s', which must have a-z, 0-9, '-' and '.' only; set another nameOverride, or fullnameOverride" (include "oarlock.operator" .)) -}}
{{- end -}}
{{- if and (or .Values.metrics.service.enabled .Values.metrics.serviceMonitor.enabled) (not (regexMatch "^[A-Za-z][-A-Za-z0-9]{0,62}$" (printf "%s-metrics" (include "oarlock.operator" .)))) -}}
{{- fail (printf "the name of the Service would be '%s-metrics', which must start with a letter, and have at most 63 of a-z, 0-9 and '-'; use another name of the release, or set fullnameOverride" (include "oarlock.operator" .)) -}}
{{- end -}}
{{- if eq (int .Values.metrics.port) (int .Values.healthPort) -}}
{{- fail "healthPort: must differ from metrics.port, because the operator listens on both" -}}
{{- end -}}
{{- if .Values.metrics.tls.secretName -}}
{{- range .Values.extraVolumes -}}
{{- if eq .name "tls" -}}
{{- fail "extraVolumes: the volume 'tls' contains the Secret of metrics.tls; choose another name" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- with .Values.leaderElection -}}
{{- if and .enabled (not (and (gt (int .leaseDurationSeconds) (int .renewDeadlineSeconds)) (gt (int .renewDeadlineSeconds) (int .retryPeriodSeconds)))) -}}
{{- fail "leaderElection: leaseDurationSeconds must be more than renewDeadlineSeconds, and that more than retryPeriodSeconds" -}}
{{- end -}}
{{- end -}}
{{- end -}}
