// Fingerprints of content: equal for equal data, wherever their files are.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "trainer/data/dataset.h"

struct XXH3_state_s;

namespace oarlock {

// Computes a fingerprint (XXH3, 128 bits) of values that are added in order.
class FingerprintBuilder {
 public:
  FingerprintBuilder();

  void add(std::span<const std::byte> bytes);
  void add(int64_t number);
  void add(std::string_view text);  // and its length
  // A tensor on the CPU: its type, its shape and its values.
  void add(const at::Tensor& tensor);

  std::string text() const;  // 32 hexadecimal digits

 private:
  std::shared_ptr<XXH3_state_s> state_;
};

// For datasets that are too large to be read at the start, as an implementation of Dataset::fingerprint(): a
// fingerprint of the size and of samples at equal distances, from the first to the last. All samples if they have at
// most kMaxFingerprintBytes as batches, otherwise as many as these bytes hold, and at least 16.
std::string sampled_fingerprint(const Dataset& dataset);

inline constexpr int64_t kMaxFingerprintBytes = int64_t{16} << 20;

}  // namespace oarlock
