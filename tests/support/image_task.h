// Common functions of the tests of the task image_classification.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "trainer/data/dataset.h"

namespace oarlock::test {

inline std::vector<std::pair<std::string, std::vector<int64_t>>> shapes_of(const torch::nn::Module& model) {
  std::vector<std::pair<std::string, std::vector<int64_t>>> shapes;
  for (const auto& item : model.named_parameters()) shapes.emplace_back(item.key(), item.value().sizes().vec());
  return shapes;
}

inline std::vector<int64_t> all_of(const Dataset& dataset) {
  std::vector<int64_t> indices(static_cast<size_t>(dataset.size()));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

inline std::string bytes_of(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

}  // namespace oarlock::test
