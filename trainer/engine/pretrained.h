// Weights of a file into a model that is about to be trained.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/pretrained.h"

namespace oarlock {

// What came of it, by name.
struct PretrainedReport {
  int64_t loaded = 0;
  std::vector<std::string> missing;     // of the model, not in the file
  std::vector<std::string> unexpected;  // of the file, not in the model
  std::vector<std::string> misshapen;   // in both, with the two shapes

  bool fits() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  std::string misfit() const;  // in words, with the first few names; empty where it fits
};

// Copies the tensors whose names and shapes are those of the model's parameters and buffers, converting their type. A
// prefix "module." (DistributedDataParallel's) or "_orig_mod." (torch.compile's) that all names of the file have is
// not part of them. With strict, nothing is copied unless everything fits. `tensors` are those of the file
// config.path. kDataErr names tensors.
Result<PretrainedReport> load_pretrained(const PretrainedConfig& config, TensorMap tensors,
                                         const torch::nn::Module& module);

// The names without the prefixes that all of them have. Pure.
TensorMap without_wrappers(TensorMap tensors);

}  // namespace oarlock
