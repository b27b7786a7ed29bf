#include "cli/job_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "api/profile.h"
#include "api/validate.h"
#include "cli/pod_schema/complete_pod.h"
#include "cli/pod_schema/pod_rules.h"
#include "cli/pod_schema/pod_schema.h"
#include "common/contract.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "operator/core/desired.h"
#include "yaml/object_list.h"
#include "yaml/path.h"
#include "yaml/reader.h"

namespace oarlock::cli {
namespace {

Result<std::string> read_standard_input() {
  if (::isatty(STDIN_FILENO) == 1)
    return fail(ExitCode::kUsage,
                "'-' reads from standard input, which is a terminal; redirect a file or a pipe to it");
  std::string text;
  char buffer[1 << 16];
  while (true) {
    const ssize_t size = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0)
      return fail(ExitCode::kNoInput,
                  fmt::format("standard input cannot be read: {}", std::generic_category().message(errno)));
    if (size == 0) return text;
    text.append(buffer, static_cast<size_t>(size));
    if (text.size() > yaml::limits::kFileBytes)
      return fail(ExitCode::kConfig,
                  fmt::format("stdin: has more than {} MiB, the limit for a file", yaml::limits::kFileBytes >> 20));
  }
}

// Whether the path is that of a descriptor of this process, which other programs cannot open.
bool is_descriptor_path(const std::string& path) {
  return path == "/dev/stdin" || path.starts_with("/dev/fd/") || path.starts_with("/proc/self/");
}

}  // namespace

Result<InputFile> InputFile::open(const std::string& given) {
  std::error_code ignored;
  const bool is_pipe = given != "-" && (std::filesystem::is_fifo(given, ignored) || is_descriptor_path(given));
  if (given != "-" && !is_pipe) return InputFile(given, given);
  const Result<std::string> text = is_pipe ? read_file(given, yaml::limits::kFileBytes + 1) : read_standard_input();
  if (!text) return tl::make_unexpected(text.error());
  // In memory, so that nothing is left behind if a signal ends this process.
  Result<FileDescriptor> copy = create_memory_file("oarlock-input", *text);
  if (!copy) {
    return fail(ExitCode::kOsErr, fmt::format("{} cannot be copied: {}; give a file instead",
                                              is_pipe ? given : "standard input", copy.error().message));
  }
  // Other processes of this user can open this path, too.
  InputFile input(fmt::format("/proc/{}/fd/{}", ::getpid(), copy->get()), is_pipe ? given : "stdin");
  input.copy_ = *std::move(copy);
  return input;
}

// ---- TrainingJobs ------------------------------------------------------------------------------------------------

namespace {

// Returns true if the document is clearly of another kind. A kind or an apiVersion with a typing error is reported, and
// thus not of another kind.
bool is_of_another_kind(const yaml::Node& document) {
  const std::optional<yaml::Node> kind = document.find("kind");
  if (!kind || kind->text() == kKind) return false;
  const std::optional<yaml::Node> version = document.find("apiVersion");
  const bool our_group = version && version->text().starts_with(kGroup);
  return !our_group && suggest(kind->text(), {kKind}).empty();
}

// Describes a file without a TrainingJob by the kinds of its objects.
std::string describe_others(const std::set<std::string>& kinds, bool is_empty) {
  constexpr size_t kMaxShown = 3;
  for (const char* kind : {"PyTorchJob", "TrainJob", "MPIJob", "JobSet"}) {
    if (kinds.contains(kind)) return fmt::format(", but a {}; translate it with oarlock convert -f FILE", kind);
  }
  if (is_empty) return ", which is empty";
  if (kinds.empty()) return "";
  std::vector<std::string> shown;
  for (const std::string& kind : kinds) {
    if (shown.size() < kMaxShown) shown.push_back(shortened(kind, 40));
  }
  return fmt::format(", but {}{}", fmt::join(shown, ", "), kinds.size() > kMaxShown ? " and others" : "");
}

// Returns why a document cannot be a Kubernetes object, in which case its fields are not checked.
std::optional<std::string> why_no_object(const yaml::Node& document) {
  if (document.kind() != yaml::Node::Kind::kMap)
    return fmt::format("this is not a map; a {} begins with apiVersion: {}", kKind, kApiVersion);
  if (document.find("kind") || document.find("apiVersion")) return std::nullopt;
  if (document.find("task")) {
    return fmt::format(
        "this is a configuration of oarlock-trainer, not a {}; put it under spec.trainer of one, or use "
        "oarlock-trainer --config FILE",
        kKind);
  }
  return fmt::format(
      "this is not a Kubernetes object: it has neither apiVersion nor kind; a {} begins with "
      "apiVersion: {}",
      kKind, kApiVersion);
}

// Lists the names of the jobs for a message, truncated if there are many.
std::string names_of(const std::vector<api::TrainingJob>& jobs) {
  constexpr size_t kMaxShown = 20;
  std::vector<std::string> names;
  for (const api::TrainingJob& job : jobs) {
    if (names.size() == kMaxShown) {
      names.emplace_back("...");
      break;
    }
    names.push_back(job.metadata.name);
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

yaml::Mark mark_of_name(const yaml::Node& document) {
  const std::optional<yaml::Node> metadata = document.find("metadata");
  const std::optional<yaml::Node> name = metadata ? metadata->find("name") : std::nullopt;
  return name.value_or(document).mark();
}

// Names of the volumes of a pod.
std::set<std::string> volumes_of(const nlohmann::json& pod) {
  std::set<std::string> names;
  for (const nlohmann::json& volume : elements(member(pod, "spec"), "volumes")) names.insert(text_at(volume, "name"));
  return names;
}

void check_name(const yaml::Node& map, std::string_view key, bool allows_dots, std::string_view path,
                yaml::Problems& problems) {
  const std::optional<yaml::Node> value = map.find(key);
  if (!value || value->kind() != yaml::Node::Kind::kScalar || !value->value().is_string()) return;
  if (value->text().empty() || is_object_name(value->text(), allows_dots)) return;
  problems.add(value->mark(), fmt::format("{}.{}", path, key),
               fmt::format("'{}' cannot be a name: names have a-z, 0-9{} and '-' only", shortened(value->text()),
                           allows_dots ? ", '.'" : ""));
}

// Adds a problem of a pod at the field of the job from which it comes: that of the template, or else the one of
// spec.resourcesPerNode.
void add_pod_problem(const yaml::Node& document, const FieldProblem& problem, yaml::Problems& problems) {
  std::string path = "spec.template." + problem.path;
  yaml::Place place = yaml::find_place(document, path);
  const size_t resources = path.find("].resources");
  if (!place.is_whole && resources != std::string::npos && document.find("spec")->find("resourcesPerNode")) {
    path = "spec.resourcesPerNode" + path.substr(resources + std::string_view("].resources").size());
    place = yaml::find_place(document, path);
  }
  problems.add(place.mark, path, problem.message);
}

}  // namespace

void check_pods(const yaml::Node& document, const api::TrainingJob* job, yaml::Problems& problems) {
  if (const auto metadata = document.find("metadata")) {
    if (const auto labels = metadata->find("labels")) check_labels(*labels, "metadata.labels", problems);
    check_name(*metadata, "namespace", false, "metadata", problems);
  }
  const std::optional<yaml::Node> spec = document.find("spec");
  if (!spec) return;
  if (const auto resources = spec->find("resourcesPerNode"))
    check_rules_of_type("ResourceRequirements", *resources, "spec.resourcesPerNode", problems);
  if (const auto image = spec->find("image")) {
    if (image->kind() == yaml::Node::Kind::kScalar && image->is_quoted() && image->text().empty())
      problems.add(image->mark(), "spec.image", "is empty; leave it out for the default image");
    check_image(*image, "spec.image", problems);
  }
  if (const auto checkpoints = spec->find("checkpoints")) {
    check_name(*checkpoints, "claimName", true, "spec.checkpoints", problems);
    const std::optional<yaml::Node> size = checkpoints->find("size");
    if (size && size->value().is_string()) check_size(*size, "spec.checkpoints.size", problems);
  }
  const size_t problems_before = problems.size();
  const std::optional<yaml::Node> pod = spec->find("template");
  if (pod) check_pod_template(*pod, "spec.template", problems);
  if (job == nullptr) return;
  const nlohmann::json complete = control::PodFactory(*job, 0).pod(0);
  if (const auto pod_spec = pod ? pod->find("spec") : std::nullopt)
    check_volume_mounts(*pod_spec, "spec.template.spec", volumes_of(complete), problems);
  if (problems.size() > problems_before) return;
  for (const FieldProblem& problem : check_complete_pod(complete)) add_pod_problem(document, problem, problems);
}

namespace {

Result<JobFile> read_jobs(const std::vector<yaml::Node>& documents, const std::string& file, TemplateCheck check) {
  using Name = std::pair<std::string, std::string>;  // namespace and name
  const auto name_of = [](const api::TrainingJob& job) { return Name(job.metadata.namespace_name, job.metadata.name); };
  JobFile out;
  bool has_jobs = false;
  yaml::Problems problems(file);
  std::map<Name, yaml::Mark> seen;
  std::set<Name> repeated;
  std::set<std::string> others;  // kinds of other objects
  for (const auto& [document, path_of_object] : yaml::list_objects(documents)) {
    if (is_of_another_kind(document)) {
      others.insert(document.find("kind")->text());
      continue;
    }
    has_jobs = true;
    problems.set_root(path_of_object);
    if (const auto kind = document.find("kind"); kind && kind->text() == api::kProfileKind) {
      const size_t problems_before = problems.size();
      api::AppliedProfile profile = api::profile_from_yaml(document, problems);
      if (check == TemplateCheck::kPodSchema) check_pods(document, nullptr, problems);
      if (problems.size() == problems_before) out.profiles.push_back(std::move(profile));
      continue;
    }
    if (const auto why = why_no_object(document)) {
      problems.add(document.mark(), "", *why);
      continue;
    }
    const size_t problems_before = problems.size();
    api::TrainingJob job = api::training_job_from_yaml(document, problems);
    const bool is_valid = problems.size() == problems_before;
    // The pods of a job that names a profile are not complete without it.
    const bool is_complete = is_valid && (!job.spec.profile || job.spec.profile->empty());
    if (check == TemplateCheck::kPodSchema) check_pods(document, is_complete ? &job : nullptr, problems);
    const yaml::Mark mark = mark_of_name(document);
    const auto [first, is_new] = seen.try_emplace(name_of(job), mark);
    if (!is_new && !job.metadata.name.empty()) {
      repeated.insert(name_of(job));
      problems.add(mark, "metadata.name",
                   fmt::format("a {} '{}' is already at line {}; give it another name or namespace", kKind,
                               shortened(job.metadata.name), first->second.line));
    }
    if (is_valid) out.jobs.push_back(std::move(job));
  }
  if (!has_jobs) {
    return fail(ExitCode::kConfig, fmt::format("{}: there is no {} ({}) in this file{}", printable(file), kKind,
                                               kApiVersion, describe_others(others, documents.empty())));
  }
  std::erase_if(out.jobs, [&](const api::TrainingJob& job) { return repeated.contains(name_of(job)); });
  if (!problems.empty()) out.problems = problems.to_error();
  return out;
}

}  // namespace

Result<std::vector<yaml::Node>> read_documents(const InputFile& file) {
  ASSIGN_OR_RETURN(const std::string text, read_file(file.path(), yaml::limits::kFileBytes + 1));
  return yaml::parse_all(text, file.name());
}

Result<JobFile> read_jobs(const InputFile& file, TemplateCheck check) {
  ASSIGN_OR_RETURN(const std::vector<yaml::Node> documents, read_documents(file));
  return read_jobs(documents, file.name(), check);
}

Result<std::vector<api::TrainingJob>> jobs_of(const std::vector<yaml::Node>& documents, const std::string& file,
                                              TemplateCheck check) {
  ASSIGN_OR_RETURN(JobFile read, read_jobs(documents, file, check));
  if (read.problems) return tl::make_unexpected(*std::move(read.problems));
  return std::move(read.jobs);
}

void note_template_problems(const std::vector<yaml::Node>& documents, const std::string& file,
                            std::string_view command) {
  const Result<std::vector<api::TrainingJob>> checked = jobs_of(documents, file, TemplateCheck::kPodSchema);
  if (checked) return;
  print_error(fmt::format("oarlock {}: note: Kubernetes {} rejects these pods:\n{}\n", command, pod_schema_version(),
                          checked.error().message));
}

Result<api::TrainingJob> choose_job(std::vector<api::TrainingJob> jobs, const std::string& name,
                                    const std::string& path) {
  if (name.empty()) {
    if (jobs.size() == 1) return std::move(jobs.front());
    return fail(ExitCode::kUsage,
                fmt::format("{} holds {} TrainingJobs; choose one with --name: {}", path, jobs.size(), names_of(jobs)));
  }
  for (api::TrainingJob& job : jobs) {
    if (job.metadata.name == name) return std::move(job);
  }
  return fail(ExitCode::kUsage, fmt::format("{} holds no TrainingJob '{}'; it holds: {}", path, name, names_of(jobs)));
}

}  // namespace oarlock::cli
