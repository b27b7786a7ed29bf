#include "trainer/config/load.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "common/contract.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "fields/reference.h"
#include "fields/writer.h"
#include "fields/yaml_reader.h"
#include "yaml/object_list.h"
#include "yaml/reader.h"
#include "yaml/writer.h"

namespace oarlock {
namespace {

using yaml::Node;
using yaml::Problems;

// The node of a trainer configuration and its path within the file.
struct ConfigNode {
  Node node;
  std::string path;
};

std::string text_of(const Node& map, std::string_view key) {
  const std::optional<Node> value = map.find(key);
  return value ? value->text() : "";
}

tl::unexpected<Error> invalid(const std::string& file_name, std::string_view message) {
  return fail(ExitCode::kConfig, fmt::format("{}: {}", printable(file_name), message));
}

// Whether a TrainingJob has the name, "name" or "namespace/name".
bool is_named(const Node& job, std::string_view name) {
  const Node metadata = job.find("metadata").value_or(yaml::empty_map());
  const std::string own = text_of(metadata, "name");
  std::string namespace_name = text_of(metadata, "namespace");
  if (namespace_name.empty()) namespace_name = "default";  // as in the API and in `oarlock validate`
  return name == own || name == fmt::format("{}/{}", namespace_name, own);
}

// Checks the fields that determine the number of ranks. `oarlock validate` checks the rest of a TrainingJob.
Result<void> check_ranks(const Node& spec, const std::string& file_name) {
  Problems problems(file_name);
  yaml::MapReader reader(spec, "spec", problems);
  for (const char* key : {"nodes", "processesPerNode"}) {
    int count = 1;
    if (text_of(spec, key) == "auto") continue;  // of processesPerNode: the number of GPUs
    if (reader.read(key, count) && count < 1)
      reader.problem(key, fmt::format("{} is too small; the minimum is 1", count));
  }
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return {};
}

Result<ConfigNode> find_config_of_job(const Node& job, const std::string& file_name) {
  const std::optional<Node> spec = job.find("spec");
  if (spec) RETURN_IF_ERROR(check_ranks(*spec, file_name));
  const std::optional<Node> trainer = spec ? spec->find("trainer") : std::nullopt;
  if (!trainer) {
    return invalid(file_name, "the TrainingJob has no spec.trainer, so oarlock-trainer has no configuration");
  }
  return ConfigNode{*trainer, "spec.trainer"};
}

// Finds the trainer configuration among the documents of a file. `job`: see ConfigSource.
Result<ConfigNode> find_config(const std::vector<Node>& documents, const std::string& file_name,
                               const std::string& job) {
  if (documents.empty()) return invalid(file_name, "the file contains no configuration");
  std::vector<Node> jobs;
  for (const Node& document : documents) {
    if (text_of(document, "kind") == kKind && (job.empty() || is_named(document, job))) jobs.push_back(document);
  }
  if (jobs.size() > 1) {
    return invalid(file_name, fmt::format("the file contains {} TrainingJobs{}; choose one with --job NAMESPACE/NAME",
                                          jobs.size(), job.empty() ? "" : fmt::format(" '{}'", shortened(job))));
  }
  if (jobs.size() == 1) return find_config_of_job(jobs.front(), file_name);
  if (!job.empty()) return invalid(file_name, fmt::format("the file contains no TrainingJob '{}'", shortened(job)));
  if (const std::string kind = text_of(documents.front(), "kind"); !kind.empty()) {
    return invalid(file_name, fmt::format("the file contains no TrainingJob, only kind '{}'", shortened(kind)));
  }
  if (documents.size() > 1) return invalid(file_name, "the file contains several documents and none is a TrainingJob");
  return ConfigNode{documents.front(), ""};
}

// Returns the overrides, preceded by one that removes the length of the run in the file if they give it in the other
// unit: `steps=5` replaces `epochs`, and `epochs=2` replaces `steps`.
std::vector<std::string> with_one_length(const Node& root, const std::vector<std::string>& overrides) {
  const auto is_given = [&](std::string_view key) {
    return std::ranges::any_of(overrides, [&](const std::string& word) { return word.starts_with(key); });
  };
  std::vector<std::string> out = overrides;
  const bool has_steps = is_given("steps=");
  const bool has_epochs = is_given("epochs=");
  if (has_steps && !has_epochs && root.find("epochs")) out.insert(out.begin(), "epochs=");
  if (has_epochs && !has_steps && root.find("steps")) out.insert(out.begin(), "steps=");
  return out;
}

// ---- Keys of other programs ----------------------------------------------------------------------------------------

struct ForeignKeys {
  std::vector<std::string_view> keys;
  const char* remedy;
};

// Keys that people write at the top level, because Python's trainers have them there.
const std::vector<ForeignKeys>& foreign_keys() {
  static const std::vector<ForeignKeys> kRows = {
      {.keys = {"lr", "learning_rate", "learningRate"}, .remedy = "the learning rate is optimizer.lr"},
      {.keys = {"weight_decay", "momentum", "betas"}, .remedy = "it belongs to optimizer"},
      {.keys = {"batch_size", "batchSize", "train_batch_size", "per_device_train_batch_size"},
       .remedy = "the batch size is batch.size"},
      {.keys = {"num_workers", "workers"}, .remedy = "the number of loader threads is loader.threads"},
      {.keys = {"num_epochs", "n_epochs", "max_epochs", "num_train_epochs"},
       .remedy = "the length of the run is epochs"},
      {.keys = {"max_steps", "num_steps", "n_steps"}, .remedy = "the length of the run is steps"},
      {.keys = {"scheduler", "lr_scheduler"}, .remedy = "the learning-rate schedule is schedule: {name: cosine}"},
      {.keys = {"warmup_steps"}, .remedy = "it belongs to schedule"},
      {.keys = {"precision", "mixed_precision", "fp16", "bf16"},
       .remedy = "mixed precision is amp: {enabled: true, dtype: bf16}"},
      {.keys = {"gradient_accumulation_steps", "accumulation_steps"}, .remedy = "it is gradient.accumulation_steps"},
      {.keys = {"max_grad_norm", "grad_clip", "clip_norm"}, .remedy = "the norm is gradient.clip_norm"},
      {.keys = {"backend"}, .remedy = "it belongs to distributed"},
      {.keys = {"output_dir", "save_dir", "work_dir", "checkpoint_dir"}, .remedy = "the directory is checkpoint.dir"},
      {.keys = {"save_steps", "save_every"}, .remedy = "the interval of checkpoints is checkpoint.every_steps"},
      {.keys = {"log_steps", "log_every", "logging_steps"}, .remedy = "the interval is log.every_steps"},
      {.keys = {"patience"}, .remedy = "it belongs to early_stopping"},
      {.keys = {"tensorboard", "wandb", "mlflow"}, .remedy = "it belongs to tracking"},
      {.keys = {"data_path", "data_dir", "dataset", "datafile"}, .remedy = "the data are data: {path: ...}"},
      {.keys = {"random_seed"}, .remedy = "it is seed"},
      {.keys = {"gpus", "num_gpus", "world_size", "nproc_per_node"},
       .remedy = "the job or the launcher sets the number of ranks: spec.nodes and spec.processesPerNode of a "
                 "TrainingJob, or oarlock launch --nproc"},
  };
  return kRows;
}

// Reports the keys with a remedy, and accepts them, so that they are not reported again.
void report_foreign_keys(const ConfigNode& root, Problems& problems, Fields& fields) {
  for (const Node::Entry& entry : root.node.entries()) {
    for (const ForeignKeys& row : foreign_keys()) {
      if (std::ranges::find(row.keys, entry.key) == row.keys.end()) continue;
      problems.add(entry.key_mark, root.path.empty() ? entry.key : fmt::format("{}.{}", root.path, entry.key),
                   fmt::format("unknown key; {}", row.remedy));
      fields.skip(entry.key);
    }
  }
}

// Sections for which people write the value of one of their keys: optimizer: adamw.
constexpr std::pair<std::string_view, std::string_view> kShortForms[] = {
    {"optimizer", "name"}, {"schedule", "name"},      {"model", "name"},          {"data", "path"},
    {"batch", "size"},     {"amp", "enabled"},        {"ema", "enabled"},         {"checkpoint", "dir"},
    {"loader", "threads"}, {"gradient", "clip_norm"}, {"distributed", "backend"}, {"pretrained", "path"}};

constexpr std::string_view kTrackers[] = {"tensorboard", "wandb", "mlflow"};

// Reports sections that are a scalar with the map to write, and returns the configuration with that map, so that the
// rest of the configuration is checked, too.
Result<Node> expand_short_forms(const ConfigNode& root, Problems& problems) {
  Node node = root.node;
  const std::string task = text_of(node, "task");
  for (const auto& [section, key] : kShortForms) {
    const std::optional<Node> value = node.find(section);
    if (!value || value->kind() != Node::Kind::kScalar) continue;
    if (section == "data" && task == "causal_set") continue;                                    // it has paths
    if (section == "model" && task != "image_classification" && task != "comformer") continue;  // it has no name
    const std::string path = root.path.empty() ? std::string(section) : fmt::format("{}.{}", root.path, section);
    const std::string text = shortened(value->text());
    problems.add(value->mark(), path, fmt::format("expected a map, got '{}'; write {{{}: {}}}", text, key, text));
    ASSIGN_OR_RETURN(node, node.with(section, yaml::empty_map()));
    ASSIGN_OR_RETURN(node, node.with(fmt::format("{}.{}", section, key), *value));
  }
  const std::optional<Node> tracking = node.find("tracking");
  if (tracking && tracking->kind() == Node::Kind::kScalar &&
      std::ranges::find(kTrackers, tracking->text()) != std::end(kTrackers)) {
    problems.add(tracking->mark(), root.path.empty() ? "tracking" : root.path + ".tracking",
                 fmt::format("expected a map, got '{0}'; write {{{0}: {{enabled: true}}}}", tracking->text()));
    ASSIGN_OR_RETURN(node, node.with("tracking", yaml::empty_map()));
  }
  return node;
}

// Reads the configuration and records it while it is read, so the printed configuration is the one in effect.
Result<CompleteConfig> read(const ConfigNode& found, const std::string& file_name, const TaskNames& tasks,
                            const std::vector<std::string>& overrides) {
  // Overrides could replace a list or a scalar by a valid configuration, so this is checked first.
  if (found.node.kind() == Node::Kind::kSequence || found.node.kind() == Node::Kind::kScalar) {
    Problems problems(file_name);
    const yaml::MapReader reader(found.node, found.path, problems);  // reports it
    return tl::make_unexpected(problems.to_error());
  }
  ASSIGN_OR_RETURN(const Node given, yaml::with_overrides(found.node, with_one_length(found.node, overrides)));
  CompleteConfig out;
  out.is_of_job = !found.path.empty();
  Problems problems(file_name);
  ASSIGN_OR_RETURN(const Node node, expand_short_forms({given, found.path}, problems));
  YamlFieldsReader reader(node, found.path, problems);
  FieldScopes scopes;
  FieldsWriter root(out.printed, EmptyFields::kWrite, reader, &scopes);
  describe(out.config, root, tasks);
  report_foreign_keys({node, found.path}, problems, reader);
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  out.agreed = agreed_settings(out.printed, scopes);
  return out;
}

Result<CompleteConfig> read_documents(const std::vector<Node>& documents, const ConfigSource& source,
                                      const TaskNames& tasks) {
  std::vector<Node> objects;
  for (const auto& [node, path] : yaml::list_objects(documents)) objects.push_back(node);
  ASSIGN_OR_RETURN(ConfigNode found, find_config(objects, source.name(), source.job));
  // In a pod, the file is spec.trainer of the job as the API server has stored it, and the user has no such file.
  if (std::filesystem::path(source.path).lexically_normal() == fmt::format("{}/{}", kConfigMountPath, kConfigFile))
    found.path = "spec.trainer";
  return read(found, source.name(), tasks, source.overrides);
}

Result<CompleteConfig> read_text(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                 const std::vector<std::string>& overrides) {
  ASSIGN_OR_RETURN(const std::vector<Node> documents, yaml::parse_all(text, file_name));
  return read_documents(documents, {.path = file_name, .overrides = overrides}, tasks);
}

Result<CompleteConfig> read_source(const ConfigSource& source, const TaskNames& tasks) {
  if (source.path.empty()) return read({yaml::empty_map(), ""}, "", tasks, source.overrides);
  ASSIGN_OR_RETURN(const std::vector<Node> documents, yaml::load_all(source.path));
  return read_documents(documents, source, tasks);
}

TrainerConfig config_of(const CompleteConfig& parsed) { return parsed.config; }
std::string print(const CompleteConfig& parsed) { return yaml::to_yaml(parsed.printed); }

constexpr char kHead[] = R"(# The trainer's configuration

Generated by `oarlock-trainer --print-reference` from the field descriptions in the code; do not edit.

A configuration is a YAML or JSON file (`oarlock-trainer --config FILE`), or `spec.trainer` of a TrainingJob. Command-line
arguments override single keys; their values are YAML:

```sh
oarlock-trainer --config trainer.yaml optimizer.lr=4e-3 batch.size=128 'optimizer.betas=[0.9, 0.95]'
oarlock-trainer task=image_classification epochs=3             # without a file
oarlock run -f trainingjob.yaml epochs=3                       # the same for all ranks of a TrainingJob
oarlock-trainer --config trainer.yaml epochs=3 --print-config  # the complete configuration with all defaults
```

All problems are reported together, each with its place (`file:line:column: key: ...`, or `command line: key: ...`), and
the exit code is 78. A key without a value has its default value.

All ranks of a run must have the same values, except for the keys and sections that may differ between ranks.

## Options of Python programs

| Python | Oarlock |
|---|---|
| `--config FILE` | `--config FILE` |
| `--work_dir DIR`, `--output_dir DIR`, `--save-dir DIR` | `--checkpoint-dir DIR` or `checkpoint.dir=DIR` |
| `--datafile FILE`, `--data_path DIR` | `data.path=...` (most tasks) |
| `--epochs N`, `--n_epochs N` | `epochs=N` |
| `--batch-size N` | `batch.size=N` for each device; with `batch.per=global`, for all devices together |
| `--lr X`, `--learning_rate X` | `optimizer.lr=X` |
| `--use-amp` | `amp.enabled=true`, and `amp.dtype=fp16` or `bf16` |
| `--use-ema` | `ema.enabled=true` |
| `--patience N` | `early_stopping.patience=N` |
| `--backend gloo` | `distributed.backend=gloo` |
| `--seed N`, `--random_seed N` | `seed=N` |
| `--num_workers N` | `loader.threads=N` |
| `--distributed --world-size N` | `oarlock launch --nproc N oarlock-trainer ...`, or `nodes` and `processesPerNode` of a TrainingJob |
| `--experiment-name NAME` | `metadata.name` of a TrainingJob |

)";

}  // namespace

Result<CompleteConfig> load_complete_config(const ConfigSource& source, const TaskNames& tasks) {
  return read_source(source, tasks);
}

Result<TrainerConfig> load_config(const ConfigSource& source, const TaskNames& tasks) {
  return read_source(source, tasks).map(config_of);
}

Result<std::string> print_config(const ConfigSource& source, const TaskNames& tasks) {
  return read_source(source, tasks).map(print);
}

Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                   const std::vector<std::string>& overrides) {
  return read_text(text, file_name, tasks, overrides).map(config_of);
}

Result<std::string> print_parsed_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                        const std::vector<std::string>& overrides) {
  return read_text(text, file_name, tasks, overrides).map(print);
}

std::string reference_page(const TaskNames& tasks) {
  std::string out = kHead;
  TrainerConfig config;
  FieldsReference root("");
  describe(config, root, tasks);
  out += "## Keys of all tasks\n\n" + root.markdown(3);
  for (const std::string& name : tasks.names) {
    FieldsReference own("");
    tasks.describe_sections(name, own);
    out += fmt::format("## The task `{}`\n\n{}", name, own.markdown(3));
  }
  out.pop_back();  // the page ends with one newline
  return out;
}

}  // namespace oarlock
