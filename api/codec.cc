#include "api/codec.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "api/profile.h"
#include "api/resources.h"
#include "api/rules.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "fields/json_reader.h"
#include "fields/writer.h"

namespace oarlock::api {
namespace {

using Json = nlohmann::json;

using Writer = FieldsWriter<Json>;

// Merges the spec with this profile.
Result<Json> with_profile(const Json& object, const std::string& profile) {
  Json out = object;
  ASSIGN_OR_RETURN(out["spec"], merge_profile(profile, std::move(out["spec"])));
  return out;
}

// Copies the status, because descriptions take their values by non-const reference, although a writer does not change
// them.
Json write_status(Status status, EmptyFields empty) {
  Json json;
  Writer writer(json, empty);
  describe(status, writer);
  if (!status.unknown_phase.empty()) json.erase("phase");
  if (status.profile && status.profile->spec.empty()) json["profile"].erase("spec");
  return json;
}

Json preconditions(const Metadata& job) { return {{"uid", job.uid}, {"resourceVersion", job.resource_version}}; }

Phase phase_by_conditions(const Status& status) {
  const bool has_ended = status.completion_time.has_value();
  for (const Condition& condition : status.conditions) {
    if (!condition.status) continue;
    for (const auto& [name, phase] : phase_names()) {
      if (condition.type == name && is_terminal(phase) == has_ended) return phase;
    }
  }
  return has_ended ? Phase::kFailed : Phase::kPending;
}

// Replaces an unknown status.phase by the phase that the rest of the status implies.
void replace_unknown_phase(const Json& object, Status& status) {
  const auto stored = object.is_object() ? object.find("status") : object.end();
  if (!object.is_object() || stored == object.end() || !stored->is_object()) return;
  const auto phase = stored->find("phase");
  if (phase == stored->end() || !phase->is_string() || status.phase != Phase::kNone) return;
  status.unknown_phase = phase->get<std::string>();
  status.phase = phase_by_conditions(status);
}

// More levels than any PodSpec has. Functions that parse, copy or print a JSON tree need stack for each level.
constexpr int kMaxTemplateDepth = 100;

// Reports a number outside the schema's range and replaces it by `substitute`, so that the operator can compute with
// it.
void check_range(const char* path, int64_t low, int64_t high, int substitute, int& value, ReadFindings& findings) {
  if (value >= low && value <= high) return;
  findings.problems.push_back(fmt::format("{}: {} is not in the range {} to {}", path, value, low, high));
  value = substitute;
}

void check_ranges(TrainingJob& job, ReadFindings& findings) {
  check_range("spec.nodes", 1, rules::kMaxNodes, 1, job.spec.nodes, findings);
  check_range("spec.processesPerNode", 1, rules::kMaxProcessesPerNode, 1, job.spec.processes_per_node, findings);
  check_range("status.attempt", 0, rules::kMaxAttempt, 0, job.status.attempt, findings);
}

std::string summary_of(const std::vector<std::string>& problems) {
  if (problems.empty()) return "";
  if (problems.size() == 1) return problems.front();
  return fmt::format("{} (and {} more)", problems.front(), problems.size() - 1);
}

// Reads an object whose spec is as it has to be read.
TrainingJob read_object(const Json& object) {
  using UnknownFields = JsonFieldsReader::UnknownFields;
  TrainingJob job;
  ReadFindings findings;
  JsonFieldsReader root(object, {}, UnknownFields::kSkip, findings);
  root.section("metadata", UnknownFields::kSkip, [&](Fields& metadata) { describe(job.metadata, metadata); });
  root.section("spec", UnknownFields::kReport, [&](Fields& spec) { describe(job.spec, spec); });
  root.section("status", UnknownFields::kSkip, [&](Fields& status) { describe(job.status, status); });
  replace_unknown_phase(object, job.status);
  if (job.status.profile) job.status.profile->spec.clear();
  if (json_depth(job.spec.pod_template) > kMaxTemplateDepth) {
    findings.problems.push_back(fmt::format("spec.template: nested deeper than {} levels", kMaxTemplateDepth));
  } else {
    resolve_processes_per_node(job.spec);
  }
  check_ranges(job, findings);
  job.report.problem = summary_of(findings.problems);
  job.report.has_conditions =
      std::none_of(findings.problems.begin(), findings.problems.end(), [](const std::string& problem) {
        return problem.starts_with("status.conditions") || problem.starts_with("status:") || problem.starts_with(":");
      });
  job.report.unknown = std::move(findings.unknown);
  return job;
}

}  // namespace

TrainingJob read_training_job(const Json& object) {
  const std::string profile = text_at(member(member(object, "status"), "profile"), "spec");
  if (profile.empty()) return read_object(object);
  const Result<Json> merged = with_profile(object, profile);
  TrainingJob job = read_object(merged ? *merged : object);
  const std::string problem = merged ? job.report.problem : merged.error().message;
  if (problem.empty()) return job;
  if (awaits_start(job.status)) {
    if (merged) job = read_object(object);
    job.report.profile_problem = problem;
  } else if (!merged) {
    job.report.problem = problem;
  }
  return job;
}

Result<TrainingJob> training_job_from_json(const Json& object) {
  TrainingJob job = read_training_job(object);
  for (const std::string& problem : {job.report.problem, job.report.profile_problem}) {
    if (!problem.empty()) return fail(ExitCode::kConfig, problem);
  }
  return job;
}

Json to_json(const TrainingJob& job) {
  TrainingJob copy = job;
  Json json = {{"apiVersion", kApiVersion}, {"kind", kKind}};
  Writer metadata(json["metadata"], EmptyFields::kOmit);
  describe(copy.metadata, metadata);
  if (job.metadata.generation == 0) json["metadata"].erase("generation");
  Writer spec(json["spec"], EmptyFields::kOmit);
  describe(copy.spec, spec);
  if (job.status != Status{}) json["status"] = status_to_json(job.status);
  if (!job.status.unknown_phase.empty()) json["status"]["phase"] = job.status.unknown_phase;
  return json;
}

Json status_to_json(const Status& status) { return write_status(status, EmptyFields::kOmit); }

Json status_patch(const Metadata& job, const Status& status) {
  return {{"metadata", preconditions(job)}, {"status", write_status(status, EmptyFields::kNull)}};
}

Json conditions_patch(const Metadata& job, const std::vector<Condition>& conditions) {
  Status status;
  status.conditions = conditions;
  return {{"metadata", preconditions(job)},
          {"status", {{"conditions", write_status(std::move(status), EmptyFields::kNull).at("conditions")}}}};
}

}  // namespace oarlock::api
