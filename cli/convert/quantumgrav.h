// The YAML of QuantumGrav's trainers (its guide "Distributed Training with DDP": train_ddp.yaml) as a TrainingJob.
// Pure.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/yaml/reader.h"

namespace oarlock::convert {

struct QuantumGravOptions {
  std::string name = "quantumgrav";
  std::string image;
  std::vector<std::string> data;  // stores; empty: those that the file names
};

struct Converted {
  nlohmann::ordered_json job;
  std::vector<std::string> notes;  // "file:line:column: key: what became of it", for people
};

// Every key of the guide's example has its place, or a note that says why it has none. Types may be names or !pyobject.
// kConfig, one line for each problem with file:line:column: a section or key that is not known, a type that is not
// there, no section `parallel`.
Result<Converted> convert_quantumgrav(const yaml::Node& root, const std::string& file,
                                      const QuantumGravOptions& options);

}  // namespace oarlock::convert
