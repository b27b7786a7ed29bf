// JobSet (jobset.x-k8s.io/v1alpha2) of one replicated Job.
#include <fmt/format.h>

#include <algorithm>

#include "cli/convert/converters.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

constexpr int64_t kMaxExitCode = 255;

// Converts onExitCodes of a rule into rules of the draft with this action. A TrainingJob's rules match the exit codes
// of container 'trainer' that describe failures, from 1 to 255.
void convert_exit_codes(ObjectReader codes, const Json& action, JobDraft& draft) {
  const std::string container = codes.text("containerName");
  if (!container.empty() && container != draft.main_container) {
    for (const char* key : {"operator", "values"}) codes.take(key);  // the note covers them
    return codes.note("containerName", fmt::format("the rule is not carried over: it is about container '{}', and the "
                                                   "rules of a TrainingJob are about 'trainer' only",
                                                   container));
  }
  const size_t containers = elements(member(draft.pod, "spec"), "containers").size() +
                            elements(member(draft.pod, "spec"), "initContainers").size();
  if (container.empty() && containers > 1)
    codes.note("", "matched the exit codes of all containers; now those of 'trainer' only");
  const std::string operation = codes.text("operator");
  Json values = Json::array();
  const Json* given = codes.take("values");
  for (const Json& value : given != nullptr && given->is_array() ? *given : Json::array()) {
    const bool is_failure = value.is_number_integer() && value >= 1 && value <= kMaxExitCode;
    if (is_failure) values.push_back(value);
    if (!is_failure && value != 0)
      codes.note("values", fmt::format("{} is not an exit code from 1 to 255; not carried over", dump_json(value)));
  }
  const auto add = [&](const std::string& name, const Json& list) {
    draft.failure_rules.push_back({{"action", action}, {"onExitCodes", {{"operator", name}, {"values", list}}}});
  };
  if (!values.empty()) return add(operation, values);
  if (operation == "NotIn") {  // each failure
    add("In", Json::array({kMaxExitCode}));
    return add("NotIn", Json::array({kMaxExitCode}));
  }
  codes.note("values", "there is no exit code of a failure; the rule is not carried over");
}

// Converts onPodConditions of a rule. A TrainingJob's rules match DisruptionTarget=True.
void convert_pod_conditions(ObjectReader& rule, const Json& action, JobDraft& draft) {
  bool is_matched = false;
  for (ObjectReader& condition : rule.objects("onPodConditions")) {
    const std::string type = condition.text("type");
    const std::string status = condition.text("status");
    if (type == "DisruptionTarget" && (status.empty() || status == "True")) {
      is_matched = true;
    } else {
      condition.note("", fmt::format("{}{} has no counterpart; DisruptionTarget=True has", type,
                                     status.empty() ? "" : "=" + status));
    }
  }
  if (is_matched)
    draft.failure_rules.push_back({{"action", action}, {"onPodConditions", {{{"type", "DisruptionTarget"}}}}});
}

// Converts a rule of a Job's podFailurePolicy. A Job replaces the single pod, a TrainingJob restarts the group.
// REQUIRES: convert_pod() was called.
void convert_pod_failure_rule(ObjectReader rule, JobDraft& draft) {
  const std::string action = rule.text("action");
  std::string converted;
  if (action == "FailJob" || action == "FailIndex") {
    converted = "Fail";
  } else if (action == "Ignore") {
    converted = "RestartFree";
  } else if (action == "Count") {
    converted = "Restart";
  } else {
    return rule.problem("action", fmt::format("'{}' is not an action of a podFailurePolicy", action));
  }
  if (action == "FailIndex") rule.note("action", "FailIndex failed one index; now the job fails");
  if (!member(rule.json(), "onExitCodes").is_null()) convert_exit_codes(rule.object("onExitCodes"), converted, draft);
  convert_pod_conditions(rule, converted, draft);
}

void convert_jobset_failure_policy(ObjectReader policy, JobDraft& draft) {
  if (policy.empty()) return;
  draft.max_restarts = policy.integer("maxRestarts").value_or(0);
  policy.drop("rules",
              "rules by the reason of a failed Job have no counterpart; spec.failurePolicy.rules match exit "
              "codes, reasons and conditions of a pod");
  policy.drop_unless("restartStrategy", {"Recreate", "BlockingRecreate"},
                     "has no counterpart; the operator creates all pods of the group again");
}

}  // namespace

std::string convert_job_spec(ObjectReader& job, const std::vector<std::string>& main_names,
                             const ConvertOptions& options, JobDraft& draft) {
  set_once(draft.active_deadline_seconds, job.integer("activeDeadlineSeconds"), job.path_of("activeDeadlineSeconds"),
           job.report());
  if (const auto limit = job.integer("backoffLimit"); limit && *limit > 0)
    job.note("backoffLimit",
             "a failed pod is not replaced alone; the whole group restarts, at most "
             "spec.failurePolicy.maxRestarts times");
  job.drop("successPolicy", "not carried over; spec.successPolicy is AllRanks or Rank0");
  for (const char* key : {"backoffLimitPerIndex", "maxFailedIndexes"})
    job.drop(key, "the ranks of a group restart together; not carried over");
  job.drop_unless("completionMode", {"Indexed", "NonIndexed"}, "is not a completionMode; not carried over");
  job.drop_unless("podReplacementPolicy", {"TerminatingOrFailed", "Failed"},
                  "is not a podReplacementPolicy; not carried over");
  job.drop_unless("manualSelector", {false}, "the operator selects the pods of a job; not carried over");
  job.drop("selector", "the operator selects the pods of a job; not carried over");
  job.drop_unless("suspend", {false}, "of the Job; not carried over. spec.suspend suspends the TrainingJob");
  job.drop("ttlSecondsAfterFinished", "of the Job; spec.ttlSecondsAfterFinished deletes the TrainingJob");
  const Json* pod = job.take("template");
  const std::string path = job.path_of("template");
  static const Json kNone;
  std::string container = convert_pod(pod == nullptr ? kNone : *pod, path, main_names, options, job.report(), draft);
  ObjectReader failure = job.object("podFailurePolicy");
  for (ObjectReader& rule : failure.objects("rules")) convert_pod_failure_rule(rule, draft);
  return container;
}

void drop_network(ObjectReader network) {
  network.drop_unless("enableDNSHostnames", {true}, "the pods of a TrainingJob have names in DNS");
  network.drop_unless("publishNotReadyAddresses", {true},
                      "the addresses of a TrainingJob are published before its pods are ready");
  network.drop("subdomain", "the operator sets the names of the pods; MASTER_ADDR has that of rank 0");
}

void convert_jobset(ObjectReader& root, const ConvertOptions& options, JobDraft& draft) {
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
  convert_suspend(spec, draft);
  convert_managed_by(spec, "jobset.sigs.k8s.io", draft);
  ObjectReader success = spec.object("successPolicy");
  ObjectReader& role = roles.front();
  const std::string role_name = role.text("name");
  success.drop_unless("operator", {"All"}, "now all ranks must succeed, or rank 0 with spec.successPolicy: Rank0");
  success.drop_unless("targetReplicatedJobs", {Json::array(), Json::array({role_name})},
                      "names a role that the JobSet does not have; not carried over");
  drop_network(spec.object("network"));
  spec.drop_unless("startupPolicy", {{{"startupPolicyOrder", "AnyOrder"}}, {{"startupPolicyOrder", "InOrder"}}},
                   "has no counterpart; not carried over");  // the order of one role
  spec.drop("coordinator", "the coordinator is node rank 0; MASTER_ADDR has its name");

  const int64_t replicas = role.integer("replicas").value_or(1);
  role.drop_unless("groupName", {"default"}, "has no counterpart; not carried over");
  role.drop("dependsOn", "with one role there is nothing to wait for; not carried over");
  ObjectReader job_template = role.object("template");
  drop_metadata(job_template.object("metadata"), "Job", draft);
  ObjectReader job = job_template.object("spec");
  const int64_t parallelism = job.integer("parallelism").value_or(1);
  const int64_t completions = job.integer("completions").value_or(parallelism);
  if (completions > parallelism)
    job.note("completions", fmt::format("{} is more than the parallelism; each Job becomes {}, and no pod runs twice",
                                        completions, counted(parallelism, "node")));
  if (replicas < 1 || parallelism < 1 || replicas > 1'000'000 || parallelism > 1'000'000)
    return job.problem("parallelism", "replicas times parallelism is not a number of pods");
  draft.nodes = replicas * parallelism;
  if (replicas > 1) {
    draft.exclusive_topology.clear();
    role.note("replicas", fmt::format("{} Jobs of {} become {} nodes of one group; NODE_RANK replaces the index of "
                                      "the Job and of the pod",
                                      replicas, counted(parallelism, "pod"), draft.nodes));
  }
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
