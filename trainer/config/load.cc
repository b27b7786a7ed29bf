#include "trainer/config/load.h"

#include <fmt/format.h>

#include "common/contract.h"
#include "common/files.h"
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
  return fail(ExitCode::kConfig, fmt::format("{}: {}", file_name, message));
}

// The trainer configuration among the documents of a file.
Result<Found> find_config(const std::vector<Node>& documents, const std::string& file_name) {
  if (documents.empty()) return wrong(file_name, "the file holds no configuration");
  std::vector<Node> jobs;
  for (const Node& document : documents) {
    if (text_of(document, "kind") == kKind) jobs.push_back(document);
  }
  if (jobs.size() > 1) {
    return wrong(file_name, fmt::format("the file holds {} TrainingJobs; give each its own file", jobs.size()));
  }
  if (jobs.empty()) {
    if (const std::string kind = text_of(documents.front(), "kind"); !kind.empty()) {
      return wrong(file_name, fmt::format("the file holds no TrainingJob, only kind '{}'", kind));
    }
    if (documents.size() > 1) return wrong(file_name, "the file holds several documents and none is a TrainingJob");
    return Found{documents.front(), ""};
  }
  const std::optional<Node> spec = jobs.front().find("spec");
  const std::optional<Node> trainer = spec ? spec->find("trainer") : std::nullopt;
  if (!trainer)
    return wrong(file_name,
                 "the TrainingJob has no spec.trainer, so there is nothing that oarlock-trainer could train");
  return Found{*trainer, "spec.trainer"};
}

// Reads and records, so that what is printed is what was read.
Result<Read> read(const Found& found, const std::string& file_name, const TaskNames& tasks,
                  const std::vector<std::string>& overrides) {
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

Result<Read> read_text(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                       const std::vector<std::string>& overrides) {
  return yaml::parse_all(text, file_name)
      .and_then([&](const std::vector<Node>& documents) { return find_config(documents, file_name); })
      .and_then([&](const Found& found) { return read(found, file_name, tasks, overrides); });
}

Result<Read> read_source(const ConfigSource& source, const TaskNames& tasks) {
  if (source.path.empty()) return read({yaml::empty_map(), ""}, "", tasks, source.overrides);
  return read_file(source.path).and_then([&](const std::string& text) {
    return read_text(text, source.path, tasks, source.overrides);
  });
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
