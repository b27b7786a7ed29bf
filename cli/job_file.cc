#include "cli/job_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/contract.h"
#include "common/yaml/reader.h"
#include "common/yaml/suggest.h"
#include "operator/api/validate.h"

namespace oarlock::cli {
namespace {

// A kind or an apiVersion with a typing error shall be reported, so everything counts that is not clearly another kind.
bool is_of_another_kind(const yaml::Node& document) {
  const std::optional<yaml::Node> kind = document.find("kind");
  if (!kind || kind->text() == kKind) return false;
  const std::optional<yaml::Node> version = document.find("apiVersion");
  const bool our_group = version && version->text().starts_with(kGroup);
  return !our_group && suggest(kind->text(), {kKind}).empty();
}

std::vector<std::string> names_of(const std::vector<api::TrainingJob>& jobs) {
  std::vector<std::string> names;
  for (const api::TrainingJob& job : jobs) names.push_back(job.metadata.name);
  return names;
}

}  // namespace

Result<std::vector<api::TrainingJob>> load_jobs(const std::string& path) {
  const Result<std::vector<yaml::Node>> documents = yaml::load_all(path);
  if (!documents) return tl::make_unexpected(documents.error());
  std::vector<api::TrainingJob> jobs;
  std::vector<std::string> problems;
  for (const yaml::Node& document : *documents) {
    if (is_of_another_kind(document)) continue;
    Result<api::TrainingJob> job = api::training_job_from_yaml(document, path);
    if (job) {
      jobs.push_back(std::move(*job));
    } else {
      problems.push_back(job.error().message);
    }
  }
  if (!problems.empty()) return fail(ExitCode::kConfig, fmt::format("{}", fmt::join(problems, "\n")));
  if (jobs.empty())
    return fail(ExitCode::kConfig, fmt::format("{}: there is no {} ({}) in this file", path, kKind, kApiVersion));
  return jobs;
}

Result<api::TrainingJob> choose_job(std::vector<api::TrainingJob> jobs, const std::string& name,
                                    const std::string& path) {
  if (name.empty()) {
    if (jobs.size() == 1) return std::move(jobs.front());
    return fail(ExitCode::kUsage, fmt::format("{} holds {} TrainingJobs; choose one with --name: {}", path, jobs.size(),
                                              fmt::join(names_of(jobs), ", ")));
  }
  for (api::TrainingJob& job : jobs) {
    if (job.metadata.name == name) return std::move(job);
  }
  return fail(ExitCode::kUsage,
              fmt::format("{} holds no TrainingJob '{}'; it holds: {}", path, name, fmt::join(names_of(jobs), ", ")));
}

}  // namespace oarlock::cli
