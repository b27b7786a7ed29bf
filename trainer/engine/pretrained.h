// Loads the weights of a file into a model before training.
#pragma once

#include <torch/nn/module.h>

#include <string>
#include <vector>

#include "common/error.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/config/config.h"

namespace oarlock {

// The result of loading, by tensor name.
struct PretrainedReport {
  int64_t loaded = 0;
  std::vector<std::string> missing;     // in the model, not in the file
  std::vector<std::string> unexpected;  // in the file, not in the model
  std::vector<std::string> misshapen;   // in both, with the two shapes

  bool fits() const { return missing.empty() && unexpected.empty() && misshapen.empty(); }
  std::string misfit() const;  // a description with the first few names; empty if it fits
};

// Copies the tensors whose names and shapes match those of the model's parameters and buffers, and converts their type.
// A prefix "module." (DistributedDataParallel) or "_orig_mod." (torch.compile) that all names of the file have is
// removed. With strict, nothing is copied unless everything matches. `tensors` are those of the file config.path. Fails
// with kDataErr, which names tensors.
Result<PretrainedReport> load_pretrained(const PretrainedConfig& config, TensorMap tensors,
                                         const torch::nn::Module& module);

// Removes the prefixes that all names have. Pure.
TensorMap without_wrappers(TensorMap tensors);

}  // namespace oarlock
