#include "trainer/config/load.h"

#include <fmt/format.h>

#include "common/contract.h"
#include "common/printable.h"
#include "common/yaml/writer.h"
#include "trainer/config/fields_printer.h"
#include "trainer/config/fields_reader.h"

namespace oarlock {
namespace {

using yaml::Node;
using yaml::Problems;

struct Found {
  Node node;
  std::string path;  // to it, within the file
};

struct Read {
  TrainerConfig config;
  nlohmann::ordered_json printed;
};

std::string text_of(const Node& map, std::string_view key) {
  const std::optional<Node> value = map.find(key);
  return value ? value->text() : "";
}

tl::unexpected<Error> wrong(const std::string& file_name, std::string_view message) {
  return fail(ExitCode::kConfig, fmt::format("{}: {}", printable(file_name), message));
}

// Whether a TrainingJob has the name, "name" or "namespace/name".
bool is_named(const Node& job, std::string_view name) {
  const Node metadata = job.find("metadata").value_or(yaml::empty_map());
  const std::string own = text_of(metadata, "name");
  std::string name_space = text_of(metadata, "namespace");
  if (name_space.empty()) name_space = "default";  // as in the API and in `oarlock validate`
  return name == own || name == fmt::format("{}/{}", name_space, own);
}

// The rest of a TrainingJob is oarlock validate's to check; here only what decides how many ranks there are.
Result<void> check_ranks(const Node& spec, const std::string& file_name) {
  Problems problems(file_name);
  yaml::MapReader reader(spec, "spec", problems);
  for (const char* key : {"nodes", "processesPerNode"}) {
    int count = 1;
    if (reader.read(key, count) && count < 1)
      reader.problem(key, fmt::format("{} is too small; the least is 1", count));
  }
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return {};
}

Result<Found> config_of_job(const Node& job, const std::string& file_name) {
  const std::optional<Node> spec = job.find("spec");
  if (spec) {
    if (const Result<void> ranks = check_ranks(*spec, file_name); !ranks) return tl::make_unexpected(ranks.error());
  }
  const std::optional<Node> trainer = spec ? spec->find("trainer") : std::nullopt;
  if (!trainer)
    return wrong(file_name,
                 "the TrainingJob has no spec.trainer, so there is nothing that oarlock-trainer could train");
  return Found{*trainer, "spec.trainer"};
}

// The trainer configuration among the documents of a file. `job`: see ConfigSource.
Result<Found> find_config(const std::vector<Node>& documents, const std::string& file_name, const std::string& job) {
  if (documents.empty()) return wrong(file_name, "the file holds no configuration");
  std::vector<Node> jobs;
  for (const Node& document : documents) {
    if (text_of(document, "kind") == kKind && (job.empty() || is_named(document, job))) jobs.push_back(document);
  }
  if (jobs.size() > 1) {
    return wrong(file_name, fmt::format("the file holds {} TrainingJobs{}; choose one with --job NAMESPACE/NAME",
                                        jobs.size(), job.empty() ? "" : fmt::format(" '{}'", shortened(job))));
  }
  if (jobs.size() == 1) return config_of_job(jobs.front(), file_name);
  if (!job.empty()) return wrong(file_name, fmt::format("the file holds no TrainingJob '{}'", shortened(job)));
  if (const std::string kind = text_of(documents.front(), "kind"); !kind.empty()) {
    return wrong(file_name, fmt::format("the file holds no TrainingJob, only kind '{}'", shortened(kind)));
  }
  if (documents.size() > 1) return wrong(file_name, "the file holds several documents and none is a TrainingJob");
  return Found{documents.front(), ""};
}

// Reads and records, so that what is printed is what was read.
Result<Read> read(const Found& found, const std::string& file_name, const TaskNames& tasks,
                  const std::vector<std::string>& overrides) {
  // Also where overrides alone would make a configuration of it.
  if (found.node.kind() == Node::Kind::kSequence || found.node.kind() == Node::Kind::kScalar) {
    Problems problems(file_name);
    const yaml::MapReader reader(found.node, found.path, problems);  // reports it
    return tl::make_unexpected(problems.to_error());
  }
  const Result<Node> node = yaml::with_overrides(found.node, overrides);
  if (!node) return tl::make_unexpected(node.error());
  Read out;
  Problems problems(file_name);
  FieldsReader reader(*node, found.path, problems);
  FieldsPrinter root(reader);
  describe(out.config, root, tasks);
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  out.printed = root.printed();
  return out;
}

Result<Read> read_documents(const Result<std::vector<Node>>& documents, const ConfigSource& source,
                            const TaskNames& tasks) {
  return documents.and_then([&](const std::vector<Node>& nodes) { return find_config(nodes, source.path, source.job); })
      .and_then([&](const Found& found) { return read(found, source.path, tasks, source.overrides); });
}

Result<Read> read_text(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                       const std::vector<std::string>& overrides) {
  return read_documents(yaml::parse_all(text, file_name), {.path = file_name, .overrides = overrides}, tasks);
}

Result<Read> read_source(const ConfigSource& source, const TaskNames& tasks) {
  if (source.path.empty()) return read({yaml::empty_map(), ""}, "", tasks, source.overrides);
  return read_documents(yaml::load_all(source.path), source, tasks);
}

TrainerConfig config_of(const Read& read) { return read.config; }
std::string text_of(const Read& read) { return yaml::to_yaml(read.printed); }

}  // namespace

Result<TrainerConfig> load_config(const ConfigSource& source, const TaskNames& tasks) {
  return read_source(source, tasks).map(config_of);
}

Result<std::string> print_config(const ConfigSource& source, const TaskNames& tasks) {
  return read_source(source, tasks).map([](const Read& read) { return text_of(read); });
}

Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                   const std::vector<std::string>& overrides) {
  return read_text(text, file_name, tasks, overrides).map(config_of);
}

Result<std::string> print_parsed_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                        const std::vector<std::string>& overrides) {
  return read_text(text, file_name, tasks, overrides).map([](const Read& read) { return text_of(read); });
}

}  // namespace oarlock
