// JobSet (jobset.x-k8s.io/v1alpha2) of one replicated Job.
#include <fmt/format.h>

#include <algorithm>

#include "cli/convert/converters.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// Converts a rule of a Job's podFailurePolicy. A Job replaces the single pod, a TrainingJob restarts the group.
void convert_pod_failure_rule(ObjectReader rule, JobDraft& draft) {
  const std::string action = rule.text("action");
  Json out = Json::object();
  if (action == "FailJob" || action == "FailIndex") {
    out["action"] = "Fail";
  } else if (action == "Ignore") {
    out["action"] = "RestartFree";
  } else if (action == "Count") {
    out["action"] = "Restart";
  } else {
    return rule.problem("action", fmt::format("'{}' is not an action of a podFailurePolicy", action));
  }
  if (const Json* codes = rule.take("onExitCodes")) {
    Json kept = *codes;
    if (kept.is_object()) kept.erase("containerName");
    out["onExitCodes"] = kept;
    draft.failure_rules.push_back(out);
  } else if (const Json* conditions = rule.take("onPodConditions"); conditions != nullptr && conditions->is_array()) {
    Json kept = Json::array();
    for (const Json& condition : *conditions) {
      if (text_at(condition, "type") == "DisruptionTarget") {
        kept.push_back({{"type", "DisruptionTarget"}});
      } else {
        rule.note("onPodConditions",
                  fmt::format("{} has no counterpart; DisruptionTarget has", text_at(condition, "type")));
      }
    }
    if (kept.empty()) return;
    out["onPodConditions"] = kept;
    draft.failure_rules.push_back(out);
  }
}

void convert_jobset_failure_policy(ObjectReader policy, JobDraft& draft) {
  if (policy.empty()) return;
  draft.max_restarts = policy.integer("maxRestarts").value_or(0);
  policy.drop("rules",
              "rules by the reason of a failed Job have no counterpart; spec.failurePolicy.rules match exit "
              "codes, reasons and conditions of a pod");
  policy.drop_silently("restartStrategy");
  policy.finish();
}

}  // namespace

std::string convert_job_spec(ObjectReader& job, const std::vector<std::string>& main_names,
                             const ConvertOptions& options, JobDraft& draft) {
  if (const auto deadline = job.integer("activeDeadlineSeconds"); deadline && !draft.active_deadline_seconds)
    draft.active_deadline_seconds = deadline;
  if (const auto limit = job.integer("backoffLimit"); limit && *limit > 0)
    job.note("backoffLimit",
             "a failed pod is not replaced alone; the whole group restarts, at most "
             "spec.failurePolicy.maxRestarts times");
  ObjectReader failure = job.object("podFailurePolicy");
  for (ObjectReader& rule : failure.objects("rules")) convert_pod_failure_rule(rule, draft);
  job.drop("successPolicy", "not carried over; spec.successPolicy is AllRanks or Rank0");
  for (const char* key : {"backoffLimitPerIndex", "maxFailedIndexes"})
    job.drop(key, "the ranks of a group restart together; not carried over");
  for (const char* key : {"completionMode", "podReplacementPolicy", "manualSelector", "selector", "suspend"})
    job.drop_silently(key);
  job.drop("ttlSecondsAfterFinished", "of the Job; spec.ttlSecondsAfterFinished deletes the TrainingJob");
  const Json* pod = job.take("template");
  job.finish();
  const std::string path = job.path_of("template");
  static const Json kNone;
  return convert_pod(pod == nullptr ? kNone : *pod, path, main_names, options, job.report(), draft);
}

void convert_jobset(ObjectReader& root, const ConvertOptions& options, JobDraft& draft) {
  const Json annotations = member(draft.metadata, "annotations");
  if (annotations.is_object()) {
    for (const auto& [key, value] : annotations.items()) {
      if (!key.starts_with("alpha.jobset.sigs.k8s.io/")) continue;
      root.note("metadata.annotations", fmt::format("{} has no effect on a TrainingJob; nodeSelector, affinity and "
                                                    "topologySpreadConstraints in spec.template do placement",
                                                    key));
      draft.metadata["annotations"].erase(key);
    }
    if (draft.metadata["annotations"].empty()) draft.metadata.erase("annotations");
  }
  ObjectReader spec = root.object("spec");
  std::vector<ObjectReader> roles = spec.objects("replicatedJobs");
  if (roles.size() != 1) {
    return spec.problem("replicatedJobs",
                        fmt::format("has {} roles; a TrainingJob is one group of equal pods, so a JobSet of one role "
                                    "can be converted",
                                    roles.size()));
  }
  convert_jobset_failure_policy(spec.object("failurePolicy"), draft);
  draft.ttl_seconds_after_finished = spec.integer("ttlSecondsAfterFinished");
  draft.suspend = spec.boolean("suspend");
  convert_managed_by(spec, "jobset.sigs.k8s.io", draft);
  ObjectReader success = spec.object("successPolicy");
  if (success.text("operator") == "Any")
    success.note("operator",
                 "'Any': now all ranks must succeed, or rank 0 with "
                 "spec.successPolicy: Rank0");
  for (const char* key : {"network", "startupPolicy", "coordinator"}) spec.drop_silently(key);
  spec.finish();

  ObjectReader& role = roles.front();
  const std::string role_name = role.text("name");
  const int64_t replicas = role.integer("replicas").value_or(1);
  role.drop_silently("groupName");
  role.drop("dependsOn", "with one role there is nothing to wait for; not carried over");
  ObjectReader job_template = role.object("template");
  role.finish();
  job_template.drop_silently("metadata");
  ObjectReader job = job_template.object("spec");
  job_template.finish();
  const int64_t parallelism = job.integer("parallelism").value_or(1);
  const int64_t completions = job.integer("completions").value_or(parallelism);
  if (completions > parallelism)
    job.note("completions", fmt::format("{} is more than the parallelism; each Job becomes {}, and no pod runs twice",
                                        completions, counted(parallelism, "node")));
  if (replicas < 1 || parallelism < 1 || replicas > 1'000'000 || parallelism > 1'000'000)
    return job.problem("parallelism", "replicas times parallelism is not a number of pods");
  draft.nodes = replicas * parallelism;
  if (replicas > 1)
    role.note("replicas", fmt::format("{} Jobs of {} become {} nodes of one group; NODE_RANK replaces the index of "
                                      "the Job and of the pod",
                                      replicas, counted(parallelism, "pod"), draft.nodes));
  const std::string path = convert_job_spec(job, {role_name}, options, draft);
  if (root.report().has_problems()) return;
  convert_container_command(path, root.report(), draft);
  const std::string text = dump_json(trainer_of(draft));
  for (const char* variable : {"JOB_COMPLETION_INDEX", "job-completion-index"}) {
    if (text.find(variable) != std::string::npos)
      root.report().note(path, fmt::format("{} does not exist in the pods of a TrainingJob; use NODE_RANK", variable));
  }
}

}  // namespace oarlock::convert
