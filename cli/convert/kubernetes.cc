#include "cli/convert/converters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "common/contract.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock::convert {
namespace {

// A document with its reader. The report refers to the tree, the reader to both.
struct OpenDocument {
  Json json;
  std::unique_ptr<Report> report;
  std::string file;

  std::string kind() const { return text_at(json, "kind"); }
  std::string group() const {
    const std::string version = text_at(json, "apiVersion");
    return version.substr(0, version.find('/'));
  }
};

constexpr std::pair<const char*, const char*> kJobKinds[] = {{"PyTorchJob", "kubeflow.org"},
                                                             {"MPIJob", "kubeflow.org"},
                                                             {"JobSet", "jobset.x-k8s.io"},
                                                             {"TrainJob", "trainer.kubeflow.org"}};

bool is_job(const OpenDocument& document) {
  for (const auto& [kind, group] : kJobKinds) {
    if (document.kind() == kind && document.group() == group) return true;
  }
  return false;
}

bool is_runtime(const OpenDocument& document) {
  return document.group() == "trainer.kubeflow.org" &&
         (document.kind() == "TrainingRuntime" || document.kind() == "ClusterTrainingRuntime");
}

std::string why_skipped(const OpenDocument& document) {
  const std::string kind = shortened(document.kind());
  if (kind == kKind) return "is a TrainingJob already; skipped";
  if (kind.empty()) return "is not a Kubernetes object; skipped";
  for (const auto& [known, group] : kJobKinds) {
    if (kind == known)
      return fmt::format("{} of {} is not supported, only of {}; skipped", kind, shortened(document.group()), group);
  }
  return fmt::format("a {} is not converted; skipped", kind);
}

// Expands lists, as `kubectl get -o yaml` prints them.
void add_document(const SourceDocument& source, std::vector<OpenDocument>& documents) {
  const std::optional<yaml::Node> kind = source.root.find("kind");
  const std::optional<yaml::Node> items = source.root.find("items");
  if (kind && kind->kind() == yaml::Node::Kind::kScalar && kind->text().ends_with("List") && items) {
    for (const yaml::Node& item : items->items()) {
      if (item.kind() == yaml::Node::Kind::kMap)
        documents.push_back({to_ordered_json(item), std::make_unique<Report>(item, source.file), source.file});
    }
    return;
  }
  documents.push_back({to_ordered_json(source.root), std::make_unique<Report>(source.root, source.file), source.file});
}

OpenDocument* find_runtime(std::vector<OpenDocument>& documents, const OpenDocument& job) {
  const Json& reference = member(member(job.json, "spec"), "runtimeRef");
  std::string kind = text_at(reference, "kind");
  if (kind.empty()) kind = "ClusterTrainingRuntime";
  for (OpenDocument& document : documents) {
    if (is_runtime(document) && document.kind() == kind &&
        text_at(member(document.json, "metadata"), "name") == text_at(reference, "name"))
      return &document;
  }
  return nullptr;
}

// Returns why a stored job must not run again: its last condition, or its deletion. Empty if it may.
std::string why_ended(const Json& job) {
  constexpr std::string_view kEnded[] = {"Succeeded", "Failed", "Complete", "Completed"};
  if (!text_at(member(job, "metadata"), "deletionTimestamp").empty()) return "is being deleted";
  const Json& status = member(job, "status");
  for (const Json& condition : elements(status, "conditions")) {
    const std::string type = text_at(condition, "type");
    if (text_at(condition, "status") == "True" && std::ranges::find(kEnded, type) != std::end(kEnded))
      return fmt::format("has finished ({})", type);
  }
  const std::string terminal = text_at(status, "terminalState");
  if (!terminal.empty()) return fmt::format("has finished ({})", shortened(terminal));
  return text_at(status, "completionTime").empty() ? "" : "has finished";
}

Result<Converted> convert_job(OpenDocument& source, OpenDocument* runtime, const ConvertOptions& options) {
  ObjectReader root(source.json, "", *source.report);
  for (const char* key : {"apiVersion", "kind", "status"}) root.take(key);  // of the object itself
  JobDraft draft;
  draft.metadata = convert_metadata(root.object("metadata"), options);
  read_topology(member(source.json, "metadata"), draft);
  Report runtime_report = runtime == nullptr ? *source.report : *runtime->report;  // one job's notes on the runtime
  const std::string kind = source.kind();
  if (kind == "PyTorchJob") convert_pytorchjob(root, options, draft);
  if (kind == "MPIJob") convert_mpijob(root, options, draft);
  if (kind == "JobSet") convert_jobset(root, options, draft);
  if (kind == "TrainJob") {
    if (runtime == nullptr) {
      convert_trainjob(root, nullptr, options, draft);
    } else {
      ObjectReader reader(runtime->json, "", runtime_report);
      convert_trainjob(root, &reader, options, draft);
      if (runtime_report.has_problems()) return tl::make_unexpected(runtime_report.to_error());
    }
  }
  source.report->note_unhandled(source.json);
  if (runtime != nullptr) runtime_report.note_unhandled(runtime->json);
  if (source.report->has_problems()) return tl::make_unexpected(source.report->to_error());
  Converted out;
  ASSIGN_OR_RETURN(out.job, finish_job(draft, source.file));
  out.notes = source.report->notes();
  if (runtime != nullptr) {
    for (std::string& note : runtime_report.notes()) out.notes.push_back(std::move(note));
  }
  return out;
}

}  // namespace

Result<std::vector<Converted>> convert_kubernetes(const std::vector<SourceDocument>& sources,
                                                  const ConvertOptions& options) {
  std::vector<OpenDocument> documents;
  for (const SourceDocument& source : sources) {
    if (source.root.kind() != yaml::Node::Kind::kMap)
      return fail(ExitCode::kConfig, fmt::format("{}:{}: this is not a Kubernetes object, which is a map", source.file,
                                                 source.root.mark().line));
    add_document(source, documents);
  }
  const auto jobs = std::ranges::count_if(documents, is_job);
  if (jobs == 0) {
    std::vector<std::string> reasons;
    std::string what = "there is no PyTorchJob, TrainJob, MPIJob or JobSet in the input";
    if (documents.size() == 1) what += fmt::format(": this document {}", why_skipped(documents.front()));
    return fail(ExitCode::kConfig, fmt::format("{}: {}", sources.empty() ? "-" : sources.front().file, what));
  }
  if (jobs > 1 && !options.name.empty())
    return fail(ExitCode::kUsage, fmt::format("--name names one job, but the input has {}", jobs));

  std::vector<Converted> out;
  std::string problems;
  std::vector<std::string> skipped;
  for (OpenDocument& document : documents) {
    if (is_runtime(document)) continue;
    if (!is_job(document)) {
      document.report->note("kind", why_skipped(document));
      for (std::string& note : document.report->notes()) skipped.push_back(std::move(note));
      continue;
    }
    if (const std::string why = why_ended(document.json); !why.empty()) {
      document.report->note(
          "metadata.name",
          fmt::format("{} '{}' {}; skipped, because it would run again. To run it again, remove its "
                      "status and metadata.deletionTimestamp",
                      document.kind(), shortened(text_at(member(document.json, "metadata"), "name")), why));
      for (std::string& note : document.report->notes()) skipped.push_back(std::move(note));
      continue;
    }
    OpenDocument* runtime = document.kind() == "TrainJob" ? find_runtime(documents, document) : nullptr;
    Result<Converted> converted = convert_job(document, runtime, options);
    if (converted) {
      out.push_back(std::move(*converted));
    } else {
      if (converted.error().code != ExitCode::kConfig) return tl::make_unexpected(converted.error());
      problems += (problems.empty() ? "" : "\n") + converted.error().message;
    }
  }
  if (!problems.empty()) return fail(ExitCode::kConfig, problems);
  if (out.empty()) return fail(ExitCode::kConfig, fmt::format("{}", fmt::join(skipped, "\n")));
  out.front().notes.insert(out.front().notes.begin(), skipped.begin(), skipped.end());
  return out;
}

}  // namespace oarlock::convert
