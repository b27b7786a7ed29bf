// A safetensors file. One that is accepted is written as a file that reads back with the same tensors.
#include <cstring>

#include "ddp/safetensors.h"
#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"

using namespace oarlock;

namespace {

// Bit for bit: NaN equals itself.
bool same(const at::Tensor& a, const at::Tensor& b) {
  return a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         (a.nbytes() == 0 || std::memcmp(a.const_data_ptr(), b.const_data_ptr(), a.nbytes()) == 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  const Result<SafetensorsFile> file = read_safetensors(input.path());
  if (!file) return 0;
  size_t bytes = 0;
  for (const auto& [name, tensor] : file->tensors) bytes += tensor.nbytes();
  fuzz::require(bytes <= size);  // no gap, no overlap
  static const test::TemporaryDirectory directory;
  const std::filesystem::path again = directory.path() / "again.safetensors";
  std::filesystem::remove(again);
  fuzz::require(write_safetensors(again, file->tensors, file->metadata).has_value());
  const Result<SafetensorsFile> reread = read_safetensors(again);
  fuzz::require(reread && reread->tensors.size() == file->tensors.size() && reread->metadata == file->metadata);
  for (const auto& [name, tensor] : file->tensors)
    fuzz::require(reread->tensors.contains(name) && same(reread->tensors.at(name), tensor));
  return 0;
}
