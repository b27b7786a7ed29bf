// Drives the operator's decision core with an observed state that a fuzzer made.
#pragma once

#include <variant>

#include "api/codec.h"
#include "api/validate.h"
#include "operator/core/desired.h"
#include "operator/core/membership.h"
#include "operator/core/reconcile.h"
#include "tests/fuzz/input.h"

namespace oarlock::fuzz {

// A valid job of one node whose pods a fuzzer can vary.
inline control::Job valid_job() {
  control::Job job;
  job.metadata.name = "job";
  job.metadata.namespace_name = "default";
  job.metadata.uid = "uid";
  job.metadata.resource_version = "7";
  job.spec.pod_template = R"({"spec":{"containers":[{"name":"trainer","image":"image"}]}})";
  return job;
}

// Requires that the API server can store the status and that it reads back as it was written. The strict dump throws
// on invalid UTF-8.
inline void require_storable(const control::Job& job, const api::Status& status) {
  constexpr size_t kMaxMessage = 32768;  // of the CRD's schema for conditions
  require(!api::status_patch(job.metadata, status).dump().empty());
  for (const api::Condition& condition : status.conditions) require(condition.message.size() <= kMaxMessage);
  control::Job stored = job;
  stored.status = status;
  require(api::read_training_job(api::to_json(stored)).status == status);
}

// Requires that the decision ends and that its actions are well-formed: at most one status, which can be stored;
// events and names within the limits of the API server.
inline void decide(const control::Observed& observed) {
  const control::Plan plan = control::reconcile(observed);
  int patches = 0;
  for (const control::Action& action : plan.actions) {
    if (const auto* patch = std::get_if<control::PatchStatus>(&action)) {
      ++patches;
      require_storable(observed.job, patch->status);
    }
    if (const auto* event = std::get_if<control::EmitEvent>(&action)) require(event->message.size() <= 1024);
    if (const auto* pod = std::get_if<control::DeletePod>(&action)) require(!pod->uid.empty());
  }
  require(patches <= 1);
  require(plan.reason.find('\n') == std::string::npos);
}

}  // namespace oarlock::fuzz
