#include "trainer/config/config.h"

#include <fmt/format.h>

#include "common/contract.h"
#include "common/files.h"
#include "trainer/config/fields_reader.h"

namespace oarlock {
namespace {

using yaml::Node;
using yaml::Problems;

void describe_length(TrainerConfig& config, Fields& fields) {
  fields.field("epochs", config.epochs, at_least(1), "length of the run in passes over the data");
  fields.field("steps", config.steps, at_least(1), "length of the run in optimizer steps, instead of epochs");
  if (config.epochs && config.steps) fields.problem("steps", "the length is given twice; remove epochs or steps");
  if (!fields.given("epochs") && !fields.given("steps")) {
    fields.problem("epochs", "is required (or steps): how long to train");
  }
}

void describe_task(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  Names<size_t> names;
  for (const std::string& name : tasks.names) names.emplace_back(name, names.size());
  fields.require("task");
  size_t index = 0;
  if (!fields.choice<size_t>("task", index, names, "what is trained")) {
    fields.skip("data");  // whose sections they are is not known
    fields.skip("model");
    return;
  }
  config.task = tasks.names[index];
  tasks.describe_sections(config.task, fields);
}

struct Found {
  Node node;
  std::string path;
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

}  // namespace

void describe(TrainerConfig& config, Fields& fields, const TaskNames& tasks) {
  const auto section = [&fields](std::string_view key, auto& part, std::string_view meaning) {
    fields.section(key, [&part](Fields& inner) { describe(part, inner); }, meaning);
  };
  describe_task(config, fields, tasks);
  auto seed = static_cast<int64_t>(config.seed);
  fields.field("seed", seed, at_least(0), "of every random stream");
  config.seed = static_cast<uint64_t>(seed);
  describe_length(config, fields);
  section("batch", config.batch, "how many samples a step takes");
  section("optimizer", config.optimizer, "how parameters are updated");
  section("schedule", config.schedule, "the learning rate over the run");
  section("checkpoint", config.checkpoint, "what is saved, where and when");
  section("eval", config.eval, "when and how the model is evaluated");
  section("ddp", config.ddp, "distributed data parallel");
  section("cuda", config.cuda, "how the device is used");
  section("distributed", config.distributed, "how the ranks meet and talk");
  section("loader", config.loader, "how batches are made ahead of time");
  fields.section(
      "log",
      [&](Fields& log) {
        log.field("every_steps", config.log_every_steps, at_least(1), "steps from one line of progress to the next");
      },
      "what is told while training goes on");
  fields.choice<DeviceKind>("device", config.device,
                            {{"auto", DeviceKind::kAuto}, {"cpu", DeviceKind::kCpu}, {"cuda", DeviceKind::kCuda}},
                            "auto: a CUDA device where build and machine have one");
  fields.field("threads", config.threads, at_least(0), "of LibTorch; 0: the cores, shared by the ranks of the node");
}

Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks) {
  const Result<std::vector<Node>> documents = yaml::parse_all(text, file_name);
  if (!documents) return tl::make_unexpected(documents.error());
  const Result<Found> found = find_config(*documents, file_name);
  if (!found) return tl::make_unexpected(found.error());

  TrainerConfig out;
  Problems problems(file_name);
  FieldsReader root(found->node, found->path, problems);
  describe(out, root, tasks);
  root.finish();
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return out;
}

Result<TrainerConfig> load_config(const std::string& path, const TaskNames& tasks) {
  return read_file(path).and_then([&](const std::string& text) { return parse_config(text, path, tasks); });
}

}  // namespace oarlock
