// Reads, prints and documents a trainer configuration. All three use the descriptions of its sections
// (fields/fields.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/config/agreement.h"
#include "trainer/config/config.h"

namespace oarlock {

// A file and the overrides of the command line.
struct ConfigSource {
  std::string path;                    // "": no file, only the overrides
  std::vector<std::string> overrides;  // "optimizer.lr=0.1"; paths within the trainer configuration
  std::string job{};                   // "name" or "namespace/name" of a TrainingJob; "": the only one in the file
  std::string shown_path{};            // in messages; "": path

  const std::string& name() const { return shown_path.empty() ? path : shown_path; }  // in messages
};

struct CompleteConfig {
  TrainerConfig config;
  nlohmann::ordered_json printed;  // with every default, and the task's own sections
  AgreedValues agreed;             // those of its values that must be equal on all ranks
  bool is_of_job = false;          // spec.trainer of a TrainingJob
};

// Reads a bare trainer configuration, or spec.trainer of a TrainingJob in Kubernetes YAML, with the overrides. Of the
// rest of the TrainingJob only the number of ranks is checked. Fails with kConfig, one line per problem:
// "file:line:column: path: message" or "command line: path: message"; with kUsage if an override is not key=value; with
// kNoInput and similar codes if the file cannot be read.
Result<TrainerConfig> load_config(const ConfigSource& source, const TaskNames& tasks);

// load_config(), with the configuration as print_config() prints it.
Result<CompleteConfig> load_complete_config(const ConfigSource& source, const TaskNames& tasks);

// Returns the complete configuration, including every default and the task's own sections, as YAML that reads back to
// the same configuration. Fails as load_config() does.
Result<std::string> print_config(const ConfigSource& source, const TaskNames& tasks);

// load_config() and print_config() of a text; `file_name` is its name in messages.
Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                   const std::vector<std::string>& overrides = {});
Result<std::string> print_parsed_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                        const std::vector<std::string>& overrides = {});

// Returns docs/trainer-config.md in Markdown: the keys of each section with type, default, bounds and meaning, followed
// by the sections of every task.
std::string reference_page(const TaskNames& tasks);

}  // namespace oarlock
