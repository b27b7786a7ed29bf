#include "trainer/data/fingerprint.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
#include <new>
#include <vector>

#include "common/text.h"

namespace oarlock {
namespace {

constexpr int64_t kMinSamples = 16;
constexpr int64_t kSamplesPerBatch = 16;

int64_t bytes_of(const Batch& batch) {
  int64_t out = 1;
  for (const auto& [name, tensor] : batch.tensors) out += static_cast<int64_t>(tensor.nbytes());
  return out;
}

}  // namespace

FingerprintBuilder::FingerprintBuilder() : state_(XXH3_createState(), XXH3_freeState) {
  if (state_ == nullptr || XXH3_128bits_reset(state_.get()) != XXH_OK) throw std::bad_alloc();
}

void FingerprintBuilder::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_.get(), bytes.data(), bytes.size());
}

void FingerprintBuilder::add(int64_t number) { add(std::as_bytes(std::span(&number, 1))); }

void FingerprintBuilder::add(std::string_view text) {
  add(static_cast<int64_t>(text.size()));
  add(std::as_bytes(std::span(text)));
}

void FingerprintBuilder::add(const at::Tensor& tensor) {
  add(std::string_view(c10::toString(tensor.scalar_type())));
  add(tensor.dim());
  for (const int64_t size : tensor.sizes()) add(size);
  const at::Tensor values = tensor.contiguous();
  add(std::span(static_cast<const std::byte*>(values.const_data_ptr()), values.nbytes()));
}

std::string FingerprintBuilder::text() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_.get()));
  return to_hex(canonical.digest);
}

std::string sampled_fingerprint(const Dataset& dataset) {
  const int64_t size = dataset.size();
  FingerprintBuilder out;
  out.add(size);
  if (size == 0) return out.text();
  constexpr std::array<int64_t, 1> kFirst{0};
  const int64_t fitting = kMaxFingerprintBytes / bytes_of(make_batch(dataset, kFirst));
  const int64_t samples = std::min(size, std::max(fitting, kMinSamples));
  std::vector<int64_t> indices;
  int64_t bytes = 0;
  for (int64_t i = 0; i < samples; ++i) {
    if (bytes > 2 * kMaxFingerprintBytes && i >= kMinSamples) break;  // the first sample was smaller than the others

    // The last one is size - 1; in double precision, which is exact enough below 2^53 samples.
    const double place = samples == 1 ? 0 : static_cast<double>(i) / static_cast<double>(samples - 1);
    indices.push_back(samples == size ? i : static_cast<int64_t>(place * static_cast<double>(size - 1)));
    if (std::ssize(indices) < kSamplesPerBatch && i + 1 < samples) continue;
    const Batch batch = make_batch(dataset, indices);
    bytes += bytes_of(batch);
    for (const auto& [name, tensor] : batch.tensors) {
      out.add(name);
      out.add(tensor);
    }
    indices.clear();
  }
  return out.text();
}

}  // namespace oarlock
