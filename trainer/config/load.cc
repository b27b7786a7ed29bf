#include "trainer/config/load.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/contract.h"
#include "common/fields/reference.h"
#include "common/fields/writer.h"
#include "common/fields/yaml_reader.h"
#include "common/status_macros.h"
#include "common/text.h"
#include "common/yaml/reader.h"
#include "common/yaml/writer.h"

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
  std::string name_space = text_of(metadata, "namespace");
  if (name_space.empty()) name_space = "default";  // as in the API and in `oarlock validate`
  return name == own || name == fmt::format("{}/{}", name_space, own);
}

// Checks the fields that determine the number of ranks. `oarlock validate` checks the rest of a TrainingJob.
Result<void> check_ranks(const Node& spec, const std::string& file_name) {
  Problems problems(file_name);
  yaml::MapReader reader(spec, "spec", problems);
  for (const char* key : {"nodes", "processesPerNode"}) {
    int count = 1;
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

// Reads the configuration and records it while it is read, so the printed configuration is the one in effect.
Result<CompleteConfig> read(const ConfigNode& found, const std::string& file_name, const TaskNames& tasks,
                            const std::vector<std::string>& overrides) {
  // Overrides could replace a list or a scalar by a valid configuration, so this is checked first.
  if (found.node.kind() == Node::Kind::kSequence || found.node.kind() == Node::Kind::kScalar) {
    Problems problems(file_name);
    const yaml::MapReader reader(found.node, found.path, problems);  // reports it
    return tl::make_unexpected(problems.to_error());
  }
  ASSIGN_OR_RETURN(const Node node, yaml::with_overrides(found.node, with_one_length(found.node, overrides)));
  CompleteConfig out;
  out.is_of_job = !found.path.empty();
  Problems problems(file_name);
  YamlFieldsReader reader(node, found.path, problems);
  FieldsWriter root(out.printed, EmptyFields::kWrite, reader);
  describe(out.config, root, tasks);
  reader.finish();
  if (!problems.empty()) return tl::make_unexpected(problems.to_error());
  return out;
}

Result<CompleteConfig> read_documents(const std::vector<Node>& documents, const ConfigSource& source,
                                      const TaskNames& tasks) {
  std::vector<Node> objects;
  for (const auto& [node, path] : yaml::list_objects(documents)) objects.push_back(node);
  ASSIGN_OR_RETURN(const ConfigNode found, find_config(objects, source.name(), source.job));
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

Generated by `oarlock-trainer --print-reference` from the descriptions that also read and print a configuration; do not
edit.

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

## Options of Python programs

| Python | Oarlock |
|---|---|
| `--config FILE` | `--config FILE` |
| `--work_dir DIR`, `--output_dir DIR`, `--save-dir DIR` | `--checkpoint-dir DIR` or `checkpoint.dir=DIR` |
| `--datafile FILE`, `--data_path DIR` | `data.path=...` (most tasks) |
| `--epochs N`, `--n_epochs N` | `epochs=N` |
| `--batch-size N` | `batch.size=N`, per device; with `batch.per=global` of all devices together |
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
