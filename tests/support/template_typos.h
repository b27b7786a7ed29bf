// A pod template, and typing errors in its fields, which are reported online and offline.
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
      {"/spec/containers/0/securityContext/seccompProfile", "seccomp", false}};
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
        {"matchExpressions": [{"key": "gpu", "operator": "Exists"}]}]}}},
      "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
      "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                  {"name": "cache", "emptyDir": {"sizeLimit": "1Gi"}},
                  {"name": "token", "projected": {"sources": [
                    {"serviceAccountToken": {"path": "token", "expirationSeconds": 3600}}]}},
                  {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}}}],
      "initContainers": [{"name": "fetch", "image": "example.invalid/fetch", "restartPolicy": "Always",
                          "envFrom": [{"configMapRef": {"name": "settings"}}],
                          "volumeMounts": [{"name": "data", "mountPath": "/data"}]}],
      "containers": [{
        "name": "trainer", "image": "example.invalid/trainer", "imagePullPolicy": "Always",
        "command": ["python3"], "args": ["train.py"], "workingDir": "/work",
        "startupProbe": {"tcpSocket": {"port": 8000}, "failureThreshold": 30},
        "lifecycle": {"preStop": {"exec": {"command": ["sync"]}}},
        "env": [{"name": "NCCL_DEBUG", "value": "INFO"},
                {"name": "TOKEN", "valueFrom": {"secretKeyRef": {"name": "token", "key": "token"}}}],
        "resources": {"limits": {"nvidia.com/gpu": 1}},
        "securityContext": {"capabilities": {"add": ["IPC_LOCK"]}, "seccompProfile": {"type": "RuntimeDefault"}},
        "ports": [{"containerPort": 8000}],
        "livenessProbe": {"httpGet": {"path": "/", "port": 8000}},
        "volumeMounts": [{"name": "data", "mountPath": "/data"}]}]}})");
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
