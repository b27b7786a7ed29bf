// A list of crystals as JSON. Every structure that is accepted is a valid crystal with a finite label.
#include <algorithm>
#include <cmath>

#include "tests/fuzz/input.h"
#include "tests/support/temporary_directory.h"
#include "workloads/comformer/structures.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const test::TemporaryDirectory directory;
  const std::filesystem::path path = directory.path() / "structures.json";
  fuzz::write_file(path, fuzz::text_of(data, size));
  const auto source = comformer::open_crystals({.path = path, .target_property = "label"});
  if (!source) {
    fuzz::require(source.error().message.size() < 1000 && source.error().message.find('\n') == std::string::npos);
    return 0;
  }
  for (int64_t i = 0; i < (*source)->size(); ++i) {
    const Result<comformer::LabeledCrystal> read = (*source)->read(i);
    if (!read) continue;
    fuzz::require(spans_volume(read->crystal.lattice));
    fuzz::require(!read->crystal.numbers.empty() && read->crystal.numbers.size() == read->crystal.positions.size());
    for (const auto& position : read->crystal.positions)
      fuzz::require(std::ranges::all_of(position, [](double x) { return std::isfinite(x); }));
    fuzz::require(std::ranges::all_of(read->label, [](double x) { return std::isfinite(x); }));
  }
  return 0;
}
