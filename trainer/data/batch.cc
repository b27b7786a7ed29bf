#include "trainer/data/batch.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <stdexcept>

namespace oarlock {
namespace {

// Returns whether no other tensor shares the memory. The fence orders later writes after the reads of former owners.
bool is_sole_owner(const at::Tensor& tensor) {
  const bool sole = tensor.use_count() == 1 && tensor.storage().use_count() == 1;
  std::atomic_thread_fence(std::memory_order_acquire);
  return sole;
}

bool has_capacity(const at::Tensor& tensor, at::IntArrayRef sizes, at::ScalarType type) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(type);
  return tensor.defined() && tensor.scalar_type() == type && tensor.storage().nbytes() >= bytes;
}

}  // namespace

at::Tensor& Batch::allocate(const std::string& name, at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor& tensor = tensors[name];
  if (!pinned && has_capacity(tensor, sizes, type) && is_sole_owner(tensor)) {
    tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  } else {
    tensor = at::empty(sizes, at::TensorOptions().dtype(type).pinned_memory(pinned));
  }
  return tensor;
}

at::Tensor empty_samples(at::IntArrayRef sizes, at::ScalarType type) {
  at::Tensor out = at::empty(sizes, type);
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(out.data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  const uintptr_t last = (begin + out.nbytes()) / page * page;
  // This is a hint. The kernel may still use small pages.
  if (last > first) ::madvise(reinterpret_cast<void*>(first), last - first, MADV_HUGEPAGE);
  return out;
}

namespace {

std::vector<int64_t> with_first(at::IntArrayRef sizes, std::initializer_list<int64_t> first) {
  std::vector<int64_t> out(first);
  out.insert(out.end(), sizes.begin() + 1, sizes.end());
  return out;
}

void check_index(int64_t index, int64_t size, const std::string& name) {
  if (index >= 0 && index < size) return;
  throw std::out_of_range(fmt::format("{}: sample {} is out of range for {} samples", name, index, size));
}

// With a constant size the compiler reduces the copy to a few instructions.
template <size_t kBytes>
void copy_rows(const char* from, std::span<const int64_t> indices, char* to) {
  for (const int64_t index : indices) {
    std::memcpy(to, from + static_cast<size_t>(index) * kBytes, kBytes);
    to += kBytes;
  }
}

void copy_rows(const char* from, size_t bytes, std::span<const int64_t> indices, char* to) {
  switch (bytes) {
    case 4:
      return copy_rows<4>(from, indices, to);
    case 8:
      return copy_rows<8>(from, indices, to);
    case 16:
      return copy_rows<16>(from, indices, to);
    case 32:
      return copy_rows<32>(from, indices, to);
    default:
      for (const int64_t index : indices) {
        std::memcpy(to, from + static_cast<size_t>(index) * bytes, bytes);
        to += bytes;
      }
  }
}

// Returns the number of bytes of one row, an element of dimension 0.
size_t row_bytes(const at::Tensor& tensor) {
  return static_cast<size_t>(c10::multiply_integers(tensor.sizes().slice(1))) * tensor.element_size();
}

}  // namespace

void stack_rows(const at::Tensor& source, std::span<const int64_t> indices, const std::string& name, Batch& batch) {
  for (const int64_t index : indices) check_index(index, source.size(0), name);
  const auto count = static_cast<int64_t>(indices.size());
  at::Tensor& out = batch.allocate(name, with_first(source.sizes(), {count}), source.scalar_type());
  if (out.numel() == 0) return;
  copy_rows(static_cast<const char*>(source.const_data_ptr()), row_bytes(source), indices,
            static_cast<char*>(out.mutable_data_ptr()));
}

Result<RaggedTensor> make_ragged(std::span<const at::Tensor> samples) {
  if (samples.empty()) return fail(ExitCode::kDataErr, "there are no samples");
  const at::Tensor& first = samples.front();
  RaggedTensor out{.values = {}, .offsets = {0}};
  for (size_t i = 0; i < samples.size(); ++i) {
    const at::Tensor& sample = samples[i];
    if (sample.dim() == 0 || sample.scalar_type() != first.scalar_type() ||
        sample.sizes().slice(1) != first.sizes().slice(1)) {
      return fail(ExitCode::kDataErr,
                  fmt::format("sample {} is {} of {} dimensions, sample 0 is {} of {}: only the first dimension's size "
                              "may differ",
                              i, c10::toString(sample.scalar_type()), sample.dim(), c10::toString(first.scalar_type()),
                              first.dim()));
    }
    out.offsets.push_back(out.offsets.back() + sample.size(0));
  }
  std::vector<int64_t> sizes = first.sizes().vec();
  sizes[0] = out.offsets.back();
  out.values = empty_samples(sizes, first.scalar_type());
  at::cat_out(out.values, at::TensorList(samples.data(), samples.size()));
  return out;
}

void pad_rows(const RaggedTensor& source, std::span<const int64_t> indices, double value, const std::string& name,
              Batch& batch) {
  const auto count = static_cast<int64_t>(indices.size());
  auto* length = batch.allocate(name + "_length", {count}, at::kLong).mutable_data_ptr<int64_t>();
  int64_t longest = 0;
  for (size_t i = 0; i < indices.size(); ++i) {
    check_index(indices[i], source.size(), name);
    length[i] = source.length(indices[i]);
    longest = std::max(longest, length[i]);
  }
  at::Tensor& out =
      batch.allocate(name, with_first(source.values.sizes(), {count, longest}), source.values.scalar_type());
  auto* mask = batch.allocate(name + "_mask", {count, longest}, at::kBool).mutable_data_ptr<bool>();
  out.fill_(value);
  const auto* from = static_cast<const char*>(source.values.const_data_ptr());
  auto* to = static_cast<char*>(out.mutable_data_ptr());
  const size_t bytes = row_bytes(source.values);
  for (size_t i = 0; i < indices.size(); ++i) {
    const auto begin = static_cast<size_t>(source.offsets[static_cast<size_t>(indices[i])]);
    if (length[i] > 0) std::memcpy(to, from + begin * bytes, static_cast<size_t>(length[i]) * bytes);
    std::fill_n(mask, length[i], true);
    std::fill(mask + length[i], mask + longest, false);
    to += static_cast<size_t>(longest) * bytes;
    mask += longest;
  }
}

}  // namespace oarlock
