// Converts the configuration of QuantumGrav's trainers (train_ddp.yaml of its guide "Distributed Training with DDP") to
// a TrainingJob.
#pragma once

#include <string>
#include <vector>

#include "cli/convert/report.h"
#include "common/error.h"
#include "common/yaml/reader.h"

namespace oarlock::convert {

struct QuantumGravOptions {
  std::string name = "quantumgrav";
  std::string image;
  std::vector<std::string> data;  // stores; empty: the stores that the file names
};

// Converts every key of the guide's example, or adds a note why it needs no counterpart. Types may be names or
// !pyobject. Fails with kConfig and one line per problem with file:line:column: an unknown section or key, an
// unsupported type, or no section `parallel`.
Result<Converted> convert_quantumgrav(const yaml::Node& root, const std::string& file,
                                      const QuantumGravOptions& options);

}  // namespace oarlock::convert
