// Reads every frame of an extended XYZ file. An accepted frame must be a valid crystal.
#include <algorithm>
#include <cmath>

#include "tests/fuzz/input.h"
#include "workloads/formats/extxyz.h"

using namespace oarlock;

namespace {

void require_valid(const Crystal& crystal) {
  fuzz::require(spans_volume(crystal.lattice));
  fuzz::require(!crystal.numbers.empty() && crystal.numbers.size() == crystal.positions.size());
  fuzz::require(std::ranges::all_of(crystal.numbers, [](uint8_t number) { return number >= 1 && number <= 118; }));
  for (const auto& position : crystal.positions)
    fuzz::require(std::ranges::all_of(position, [](double x) { return std::isfinite(x); }));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  const Result<ExtxyzFile> file = ExtxyzFile::open(input.path());
  if (!file) return 0;
  fuzz::require(file->size() > 0);
  for (int64_t i = 0; i < file->size(); ++i) {
    fuzz::require(!file->place(i).empty());
    const Result<ExtxyzFrame> frame = file->read(i);
    if (!frame) continue;
    require_valid(frame->crystal);
    for (const auto& [key, value] : frame->info) {
      (void)extxyz_numbers(value);
      (void)extxyz_flags(value);
    }
  }
  return 0;
}
