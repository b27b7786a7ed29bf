// What flows from a dataset to a task: named tensors, and which samples they came from.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace oarlock {

struct Batch {
  std::map<std::string, at::Tensor>
      tensors;               // dimension 0 is the sample, unless the dataset's collation says otherwise
  std::vector<int64_t> ids;  // the samples' indices in the dataset, in order

  int64_t size() const { return static_cast<int64_t>(ids.size()); }
  const at::Tensor& operator[](const std::string& name) const { return tensors.at(name); }
};

}  // namespace oarlock
