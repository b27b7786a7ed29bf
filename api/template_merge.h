// Merge of two pod templates, by which a job's spec.template is merged into that of its profile, and the result into
// the pod that the operator builds. All functions are pure.
#pragma once

#include <nlohmann/json.hpp>

namespace oarlock::api {

// What a null in the patch does to a member of the base.
enum class PatchNull {
  kErase,  // removes it, as in a merge patch
  kKeep,   // replaces it, so that a later merge into another base removes the member there
};

// Merges `patch` into `base`, which is a PodTemplateSpec or a part of one, as kubectl merges a patch: maps by key,
// containers by name and recursively; volumes, environment variables and imagePullSecrets by name as a whole; volume
// mounts by path or volume; tolerations and envFrom of both; other lists are replaced. The items of the patch come
// first, except for environment variables, envFrom, tolerations and init containers, whose order has a meaning: there,
// those of the base come first. The patch is moved, because a parsed template takes up to forty times its size.
void merge_template(nlohmann::json& base, nlohmann::json patch, PatchNull nulls);

}  // namespace oarlock::api
