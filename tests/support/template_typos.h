// A pod template, and typing errors and other mistakes in its fields, which are reported online and offline.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace oarlock::test {

struct TemplateTypo {
  const char* field;  // JSON pointer of a field in full_template()
  const char* typo;   // the key that replaces the last one of `field`
  bool has_suggestion = true;
};

inline const std::vector<TemplateTypo>& template_typos() {
  static const std::vector<TemplateTypo> kTypos = {
      {"/metadata/labels", "lables"},
      {"/spec/containers/0/resources", "resouces"},
      {"/spec/containers/0/resources/limits", "limit"},
      {"/spec/containers/0/imagePullPolicy", "imagePullpolicy"},
      {"/spec/containers/0/command", "comand"},
      {"/spec/containers/0/args", "arg"},
      {"/spec/containers/0/env/0/value", "valeu"},
      {"/spec/containers/0/env/1/valueFrom", "valuefrom"},
      {"/spec/containers/0/env/1/valueFrom/secretKeyRef", "secretRef"},
      {"/spec/containers/0/volumeMounts/0/mountPath", "mountpath"},
      {"/spec/containers/0/securityContext/capabilities/add", "adds"},
      {"/spec/containers/0/ports/0/containerPort", "containerport"},
      {"/spec/containers/0/livenessProbe/httpGet", "httpget"},
      {"/spec/initContainers/0/volumeMounts", "volumeMount"},
      {"/spec/nodeSelector", "nodeselector"},
      {"/spec/tolerations", "toleration"},
      {"/spec/tolerations/0/effect", "efect"},
      {"/spec/terminationGracePeriodSeconds", "terminationGracePeriod"},
      {"/spec/priorityClassName", "priorityClass"},
      {"/spec/securityContext/fsGroup", "fsgroup"},
      {"/spec/volumes/0/persistentVolumeClaim", "persistentVolumeclaim"},
      {"/spec/volumes/1/emptyDir/sizeLimit", "sizelimit"},
      {"/spec/topologySpreadConstraints/0/whenUnsatisfiable", "whenUnsatisfiabel"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution", "required", false},
      {"/spec/serviceAccountName", "serviceAccountname"},
      {"/spec/imagePullSecrets", "imagePullSecret"},
      {"/spec/dnsConfig/nameservers", "nameserver"},
      {"/spec/volumes/2/projected/sources/0/serviceAccountToken/expirationSeconds", "expirationSecond"},
      {"/spec/volumes/3/ephemeral/volumeClaimTemplate/spec/accessModes", "accessMode"},
      {"/spec/initContainers/0/restartPolicy", "restartpolicy"},
      {"/spec/initContainers/0/envFrom/0/configMapRef", "configMapref"},
      {"/spec/containers/0/workingDir", "workDir", false},
      {"/spec/containers/0/startupProbe/failureThreshold", "failureTreshold"},
      {"/spec/containers/0/lifecycle/preStop", "prestop"},
      {"/spec/containers/0/securityContext/seccompProfile", "seccomp", false},
      {"/spec/containers/0/securityContext/allowPrivilegeEscalation", "allowPriviledgeEscalation"},
      {"/spec/containers/0/readinessProbe/periodSeconds", "periodSecond"},
      {"/spec/containers/0/env/2/valueFrom/fieldRef/fieldPath", "fieldpath"},
      {"/spec/initContainers/0/env/0/value", "vlaue"},
      {"/spec/initContainers/0/resources/requests", "request"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
       "matchExpressions",
       "matchExpression"},
      {"/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/topologyKey",
       "topologykey"}};
  return kTypos;
}

inline nlohmann::json full_template() {
  return nlohmann::json::parse(R"({
    "metadata": {"labels": {"team": "vision"}},
    "spec": {
      "nodeSelector": {"disk": "ssd"}, "terminationGracePeriodSeconds": 60, "priorityClassName": "high",
      "serviceAccountName": "trainer", "imagePullSecrets": [{"name": "registry"}], "dnsConfig": {"nameservers": ["192.0.2.1"]},
      "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
      "securityContext": {"fsGroup": 1000},
      "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}},
        "podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "podAffinityTerm": {
          "topologyKey": "zone", "labelSelector": {"matchLabels": {"team": "vision"}}}}]}},
      "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                  {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
                  {"name": "token", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}},
                  {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}],
      "initContainers": [{"name": "fetch", "image": "example.invalid/fetch", "restartPolicy": "Always",
                          "envFrom": [{"configMapRef": {"name": "settings"}}], "env": [{"name": "DIRECTORY", "value": "/data"}],
                          "resources": {"requests": {"cpu": "1"}},
                          "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
      "containers": [{
        "name": "trainer", "image": "example.invalid/trainer", "imagePullPolicy": "Always",
        "command": ["python3"], "args": ["train.py"], "workingDir": "/work",
        "startupProbe": {"tcpSocket": {"port": 8000}, "failureThreshold": 30},
        "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}},
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}, "seccompProfile": {"type": "RuntimeDefault"},
                            "allowPrivilegeEscalation": true},
        "readinessProbe": {"exec": {"command": ["true"]}, "periodSeconds": 5},
        "ports": [{"containerPort": 8000}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8000}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})");
}

// A value that the API server rejects in a pod, or a required one that is missing.
struct TemplateMistake {
  const char* field;    // JSON pointer of a field in full_template(), or of a new one
  const char* value;    // JSON; "" removes the field
  const char* path;     // of the problem, without "spec.template."
  const char* message;  // of the problem
};

inline const std::vector<TemplateMistake>& template_mistakes() {
  static const std::vector<TemplateMistake> kMistakes = {
      {"/spec/containers/0/imagePullPolicy", R"("always")", "spec.containers[0].imagePullPolicy",
       "'always' is not one of Always, IfNotPresent, Never; did you mean 'Always'?"},
      {"/spec/tolerations/0/effect", R"("NoSchedul")", "spec.tolerations[0].effect", "did you mean 'NoSchedule'?"},
      {"/spec/topologySpreadConstraints/0/whenUnsatisfiable", R"("Never")",
       "spec.topologySpreadConstraints[0].whenUnsatisfiable", "'Never' is not one of DoNotSchedule, ScheduleAnyway"},
      {"/spec/topologySpreadConstraints/0/maxSkew", "", "spec.topologySpreadConstraints[0].maxSkew", "is required"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
       "matchExpressions/0/"
       "operator",
       R"("Equals")",
       "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
       "matchExpressions[0].operator",
       "'Equals' is not one of In, NotIn, Exists, DoesNotExist, Gt, Lt"},
      {"/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/topologyKey",
       "",
       "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey",
       "is required"},
      {"/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/weight", "",
       "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight", "is required"},
      {"/spec/containers/0/env/0/name", "", "spec.containers[0].env[0].name", "is required"},
      {"/spec/containers/0/env/1/value", R"("x")", "spec.containers[0].env[1]",
       "has value and valueFrom; keep one of them"},
      {"/spec/containers/0/env/1/valueFrom/secretKeyRef/key", "",
       "spec.containers[0].env[1].valueFrom.secretKeyRef.key", "is required"},
      {"/spec/containers/0/volumeMounts/0/mountPath", "", "spec.containers[0].volumeMounts[0].mountPath",
       "is required"},
      {"/spec/containers/0/ports/0/containerPort", "", "spec.containers[0].ports[0].containerPort", "is required"},
      {"/spec/containers/0/ports/0/protocol", R"("tcp")", "spec.containers[0].ports[0].protocol",
       "did you mean 'TCP'?"},
      {"/spec/containers/0/livenessProbe/httpGet/port", "", "spec.containers[0].livenessProbe.httpGet.port",
       "is required"},
      {"/spec/containers/0/livenessProbe/httpGet/scheme", R"("http")",
       "spec.containers[0].livenessProbe.httpGet.scheme", "did you mean 'HTTP'?"},
      {"/spec/containers/0/securityContext/seccompProfile/type", R"("Runtime/Default")",
       "spec.containers[0].securityContext.seccompProfile.type", "did you mean 'RuntimeDefault'?"},
      {"/spec/containers/0/resources/limits", R"({"gpu": 1})", "spec.containers[0].resources.limits.gpu",
       "there is no such resource; did you mean 'nvidia.com/gpu'?"},
      {"/spec/containers/0/resources/limits", R"({"mem": "1Gi"})", "spec.containers[0].resources.limits.mem",
       "there is no such resource"},
      {"/spec/initContainers/0/image", "", "spec.initContainers[0].image",
       "only the container 'trainer' has a default"},
      {"/spec/initContainers/0/name", "", "spec.initContainers[0].name", "is required"},
      {"/spec/initContainers/1", R"({"name": "fetch", "image": "a"})", "spec.initContainers[1].name",
       "'fetch' occurs twice; use each once"},
      {"/spec/volumes/1/name", R"("data")", "spec.volumes[1].name", "'data' occurs twice; use each once"},
      {"/spec/volumes/1/name", "", "spec.volumes[1].name", "is required"},
      {"/spec/volumes/1/hostPath", R"({"path": "/a"})", "spec.volumes[1]",
       "has the sources emptyDir and hostPath; a volume has one, so keep one of them"},
      {"/spec/volumes/0/persistentVolumeClaim/claimName", "", "spec.volumes[0].persistentVolumeClaim.claimName",
       "is required"},
      {"/spec/containers/0/volumeMounts/1", R"({"name": "cache", "mountPath": "/data"})",
       "spec.containers[0].volumeMounts[1].mountPath", "'/data' occurs twice; use each once"},
      {"/spec/nodeSelector/disk", R"("very fast")", "spec.nodeSelector.disk",
       "'very fast' is not the value of a label: at most 63 letters, digits, '-', '_' and '.'"},
      {"/metadata/labels/team", R"("vision & text")", "metadata.labels.team", "is not the value of a label"},
      {"/spec/containers/0/livenessProbe/exec", R"({"command": ["true"]})", "spec.containers[0].livenessProbe",
       "has exec and httpGet; keep one of them"},
      {"/spec/containers/0/livenessProbe/httpGet", "", "spec.containers[0].livenessProbe",
       "must have one of exec, httpGet, tcpSocket, grpc"},
      {"/spec/containers/0/livenessProbe/httpGet/port", "70000", "spec.containers[0].livenessProbe.httpGet.port",
       "70000 must be from 1 to 65535"},
      {"/spec/containers/0/livenessProbe/successThreshold", "2", "spec.containers[0].livenessProbe",
       "successThreshold must be 1"},
      {"/spec/containers/0/livenessProbe/periodSeconds", "-1", "spec.containers[0].livenessProbe.periodSeconds",
       "-1 must be at least 0"},
      {"/spec/containers/0/readinessProbe/terminationGracePeriodSeconds", "5", "spec.containers[0].readinessProbe",
       "terminationGracePeriodSeconds must be left out"},
      {"/spec/containers/0/readinessProbe/exec", "{}", "spec.containers[0].readinessProbe.exec.command", "is required"},
      {"/spec/containers/0/lifecycle/postStart", "{}", "spec.containers[0].lifecycle.postStart",
       "must have one of exec, httpGet, tcpSocket, sleep"},
      {"/spec/initContainers/1", R"({"name": "b", "image": "b", "livenessProbe": {"exec": {"command": ["a"]}}})",
       "spec.initContainers[1].livenessProbe", "only with restartPolicy: Always"},
      {"/spec/tolerations/0/value", R"("a100")", "spec.tolerations[0].value", "must be left out with operator Exists"},
      {"/spec/tolerations/0/operator", R"("Exist")", "spec.tolerations[0].operator", "did you mean 'Exists'?"},
      {"/spec/tolerations/1", R"({"value": "a"})", "spec.tolerations[1].operator", "must be Exists without a key"},
      {"/spec/tolerations/0/tolerationSeconds", "5", "spec.tolerations[0].effect", "must be NoExecute"},
      {"/spec/containers/0/volumeMounts/0/subPath", R"("../a")", "spec.containers[0].volumeMounts[0].subPath",
       "'../a' must not contain '..'"},
      {"/spec/containers/0/volumeMounts/0/subPath", R"("/a")", "spec.containers[0].volumeMounts[0].subPath",
       "'/a' must be relative to the volume"},
      {"/spec/containers/0/volumeMounts/0/subPathExpr", R"("a/..")", "spec.containers[0].volumeMounts[0].subPathExpr",
       "'a/..' must not contain '..'"},
      {"/spec/containers/0/volumeMounts/0/mountPropagation", R"("Both")",
       "spec.containers[0].volumeMounts[0].mountPropagation",
       "'Both' is not one of None, HostToContainer, Bidirectional"},
      {"/spec/volumes/1", R"({"name": "a", "hostPath": {"path": "/a/../b"}})", "spec.volumes[1].hostPath.path",
       "'/a/../b' must not contain '..'"},
      {"/spec/volumes/1", R"({"name": "a", "hostPath": {"path": "/a", "type": "Dir"}})",
       "spec.volumes[1].hostPath.type", "'Dir' is not one of"},
      {"/spec/volumes/1", R"({"name": "a", "secret": {"secretName": "s", "defaultMode": 644}})",
       "spec.volumes[1].secret.defaultMode", "644 is not a mode from 0 to 0777"},
      {"/spec/volumes/1", R"({"name": "a", "configMap": {"name": "c", "items": [{"key": "k", "path": "../k"}]}})",
       "spec.volumes[1].configMap.items[0].path", "'../k' must not contain '..'"},
      {"/spec/volumes/1", R"({"name": "a", "nfs": {"server": "s", "path": "a"}})", "spec.volumes[1].nfs.path",
       "'a' must be absolute"},
      {"/spec/volumes/1/name", R"("Cache_1")", "spec.volumes[1].name", "'Cache_1' cannot be a name"},
      {"/spec/volumes/2/projected/sources/0/serviceAccountToken/expirationSeconds", "60",
       "spec.volumes[2].projected.sources[0].serviceAccountToken.expirationSeconds", "60 must be from 600"},
      {"/spec/volumes/2/projected/sources/0/secret", R"({"name": "s"})", "spec.volumes[2].projected.sources[0]",
       "has secret and serviceAccountToken; keep one of them"},
      {"/spec/activeDeadlineSeconds", "0", "spec.activeDeadlineSeconds", "0 must be from 1"},
      {"/spec/containers/0/ports/0/containerPort", "0", "spec.containers[0].ports[0].containerPort",
       "0 must be from 1 to 65535"},
      {"/spec/containers/0/ports/0/name", R"("Web_1")", "spec.containers[0].ports[0].name",
       "'Web_1' cannot be the name of a port"},
      {"/spec/containers/0/ports/0/name", R"("a-name-that-is-too-long")", "spec.containers[0].ports[0].name",
       "at most 15 characters"},
      {"/spec/containers/0/env/0/name", R"("A=B")", "spec.containers[0].env[0].name", "must not contain '='"},
      {"/spec/containers/0/env/1/valueFrom/fieldRef", R"({"fieldPath": "spec.nodeName"})",
       "spec.containers[0].env[1].valueFrom", "has fieldRef and secretKeyRef; keep one of them"},
      {"/spec/containers/0/env/1/valueFrom", "{}", "spec.containers[0].env[1].valueFrom", "must have one of"},
      {"/spec/initContainers/0/envFrom/0/configMapRef", "", "spec.initContainers[0].envFrom[0]",
       "must have one of configMapRef, secretRef"},
      {"/spec/containers/0/securityContext/runAsUser", "-1", "spec.containers[0].securityContext.runAsUser",
       "-1 must be from 0"},
      {"/spec/containers/0/securityContext/seccompProfile", R"({"type": "Localhost"})",
       "spec.containers[0].securityContext.seccompProfile.localhostProfile", "is required with type Localhost"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
       "matchExpressions/0/values",
       R"(["a"])",
       "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
       "matchExpressions[0].values",
       "must be left out with operator Exists"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0/"
       "matchExpressions/0/operator",
       R"("In")",
       "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[0]."
       "matchExpressions[0].values",
       "is required with operator In"},
      {"/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms", "[]",
       "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms",
       "must have a term"},
      {"/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/weight", "200",
       "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight",
       "200 must be from 1 to 100"},
      {"/spec/topologySpreadConstraints/0/minDomains", "2", "spec.topologySpreadConstraints[0].minDomains",
       "requires whenUnsatisfiable: DoNotSchedule"},
      {"/spec/topologySpreadConstraints/1",
       R"({"maxSkew": 2, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"})",
       "spec.topologySpreadConstraints", "'zone' with ScheduleAnyway occurs twice"},
      {"/spec/tolerations/0/key", R"("/gpu")", "spec.tolerations[0].key", "'/gpu' cannot be the key of a label"},
      {"/spec/affinity/podAntiAffinity/preferredDuringSchedulingIgnoredDuringExecution/0/podAffinityTerm/topologyKey",
       R"("a b")",
       "spec.affinity.podAntiAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].podAffinityTerm.topologyKey",
       "'a b' cannot be the key of a label"},
      {"/spec/containers/0/env/1/valueFrom/secretKeyRef/key", R"("a/b")",
       "spec.containers[0].env[1].valueFrom.secretKeyRef.key", "'a/b' cannot be a key"},
      {"/spec/initContainers/0/envFrom/0/configMapRef/name", R"("A_b")",
       "spec.initContainers[0].envFrom[0].configMapRef.name", "'A_b' cannot be a name"},
      {"/spec/containers/0/env/2/valueFrom/fieldRef/fieldPath", R"("spec.node")",
       "spec.containers[0].env[2].valueFrom.fieldRef.fieldPath", "'spec.node' is not one of metadata.name"},
      {"/spec/topologySpreadConstraints/0/matchLabelKeys", R"(["a"])",
       "spec.topologySpreadConstraints[0].matchLabelKeys", "requires labelSelector"},
      {"/spec/volumes/3/ephemeral/volumeClaimTemplate/spec/accessModes", "[]",
       "spec.volumes[3].ephemeral.volumeClaimTemplate.spec.accessModes", "is required"},
      {"/spec/volumes/3/ephemeral/volumeClaimTemplate/spec/resources", "{}",
       "spec.volumes[3].ephemeral.volumeClaimTemplate.spec.resources", "must request storage"},
      {"/spec/volumes/3/ephemeral/volumeClaimTemplate/spec/volumeMode", R"("File")",
       "spec.volumes[3].ephemeral.volumeClaimTemplate.spec.volumeMode", "'File' is not one of Block, Filesystem"},
      {"/spec/hostAliases", R"([{"hostnames": ["a"]}])", "spec.hostAliases[0].ip", "is required"},
      {"/spec/ephemeralContainers", R"([{"name": "e", "image": "e"}])", "spec.ephemeralContainers", "must be left out"},
      {"/metadata/annotations", R"({"a b": "c"})", "metadata.annotations.a b", "this key has other characters"},
      {"/spec/dnsPolicy", R"("ClusterFirstWithHostNetwork")", "spec.dnsPolicy",
       "did you mean 'ClusterFirstWithHostNet'?"}};
  return kMistakes;
}

// Mistakes that only the whole pod shows, also after the merge with other parts of the job.
inline const std::vector<TemplateMistake>& pod_mistakes() {
  static const std::vector<TemplateMistake> kMistakes = {
      {"/spec/containers/0/resources", R"({"requests": {"nvidia.com/gpu": 1}})",
       "spec.containers[0].resources.requests.nvidia.com/gpu", "nvidia.com/gpu cannot be overcommitted"},
      {"/spec/containers/0/resources", R"({"requests": {"nvidia.com/gpu": 1}, "limits": {"nvidia.com/gpu": 2}})",
       "spec.containers[0].resources.requests.nvidia.com/gpu", "1 must equal the limit, 2"},
      {"/spec/containers/0/resources", R"({"requests": {"amd.com/gpu": "1", "cpu": 1}})",
       "spec.containers[0].resources.requests.amd.com/gpu", "amd.com/gpu cannot be overcommitted"},
      {"/spec/initContainers/0/resources", R"({"requests": {"rdma/ib": 1}})",
       "spec.initContainers[0].resources.requests.rdma/ib", "rdma/ib cannot be overcommitted"},
      {"/spec/containers/0/resources", R"({"limits": {"hugepages-2Mi": "4Mi"}})", "spec.containers[0].resources",
       "a container with hugepages needs a request or limit of cpu or memory"},
      {"/spec/containers/0/resources", R"({"limits": {"cpu": 1}, "requests": {"hugepages-2Mi": "4Mi"}})",
       "spec.containers[0].resources.requests.hugepages-2Mi", "hugepages-2Mi cannot be overcommitted"},
      {"/spec/initContainers/0/name", R"("trainer")", "spec.containers[0].name",
       "'trainer' is the name of an init container as well"},
      {"/spec/containers/0/ports", R"([{"name": "p", "containerPort": 80}, {"name": "p", "containerPort": 81}])",
       "spec.containers[0].ports[1].name", "'p' occurs twice; use each once"},
      {"/spec/containers/0/ports", R"([{"containerPort": 80, "hostPort": 1}, {"containerPort": 81, "hostPort": 1}])",
       "spec.containers[0].ports[1].hostPort", "port 1 of the node occurs twice"},
      {"/spec",
       R"({"hostNetwork": true, "containers": [{"name": "trainer", "ports": [{"containerPort": 80, "hostPort": 81}]}]})",
       "spec.containers[0].ports[0].hostPort", "81 must equal containerPort, 80, with hostNetwork"},
      {"/spec",
       R"({"hostNetwork": true, "containers": [{"name": "trainer", "ports": [{"containerPort": 80}]},
                                               {"name": "b", "image": "b", "ports": [{"containerPort": 80}]}]})",
       "spec.containers[1].ports[0].containerPort", "port 80 of the node occurs twice"}};
  return kMistakes;
}

// Returns full_template() with the mistake.
inline nlohmann::json with_mistake(const TemplateMistake& mistake) {
  nlohmann::json out = full_template();
  const nlohmann::json::json_pointer field(mistake.field);
  if (*mistake.value == '\0') {
    out.at(field.parent_pointer()).erase(field.back());
  } else {
    out[field] = nlohmann::json::parse(mistake.value);
  }
  return out;
}

// Returns the last key of the field, which is the correct one.
inline std::string correct_key(const TemplateTypo& typo) { return nlohmann::json::json_pointer(typo.field).back(); }

// Returns full_template() with the typing error.
inline nlohmann::json with_typo(const TemplateTypo& typo) {
  nlohmann::json out = full_template();
  const nlohmann::json::json_pointer field(typo.field);
  nlohmann::json& parent = out.at(field.parent_pointer());
  parent[typo.typo] = parent.at(field.back());
  parent.erase(field.back());
  return out;
}

// Returns the path of the misspelled field in the job: "spec.template.spec.containers[0].resouces".
inline std::string path_of(const TemplateTypo& typo) {
  std::string out = "spec.template";
  nlohmann::json::json_pointer field = nlohmann::json::json_pointer(typo.field).parent_pointer() / typo.typo;
  std::vector<std::string> keys;
  for (; !field.empty(); field.pop_back()) keys.insert(keys.begin(), field.back());
  for (const std::string& key : keys) {
    const bool is_index = key.find_first_not_of("0123456789") == std::string::npos;
    out += is_index ? "[" + key + "]" : "." + key;
  }
  return out;
}

}  // namespace oarlock::test
