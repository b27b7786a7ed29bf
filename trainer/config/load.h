// Where a configuration comes from: a file, and key=value words of the command line on top of it.
#pragma once

#include "trainer/config/config.h"

namespace oarlock {

struct ConfigSource {
  std::string path;                    // "": there is no file, only what the words set
  std::vector<std::string> overrides;  // "optimizer.lr=0.1"; paths within the trainer's configuration
  std::string job{};                   // "name" or "namespace/name" of a TrainingJob; "": the file has only one
};

// The file, a bare trainer configuration or Kubernetes YAML with a TrainingJob whose spec.trainer is read, with the
// overrides. Of the rest of the TrainingJob only the number of ranks is checked. kConfig with one line per problem:
// "file:line:column: path: message", or "command line: path: message". kUsage: an override that is no key=value.
// kNoInput and the like: the file cannot be read.
Result<TrainerConfig> load_config(const ConfigSource& source, const TaskNames& tasks);

// The complete configuration, every default and the task's own sections included, as YAML that reads back to the same.
// Fails as load_config() does.
Result<std::string> print_config(const ConfigSource& source, const TaskNames& tasks);

// load_config() and print_config() of a text.
Result<TrainerConfig> parse_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                   const std::vector<std::string>& overrides = {});
Result<std::string> print_parsed_config(const std::string& text, const std::string& file_name, const TaskNames& tasks,
                                        const std::vector<std::string>& overrides = {});

}  // namespace oarlock
