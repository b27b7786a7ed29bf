// Reads every group, dataset and known attribute of an HDF5 file as every type.
#include "tests/fuzz/input.h"
#include "workloads/formats/hdf5/reader.h"

using namespace oarlock;

namespace {

constexpr int64_t kMaxElements = 1 << 16;
constexpr int kMaxDepth = 8;

void read_attributes(const Hdf5Object& object) {
  for (const char* name :
       {"categories", "encoding-type", "_index", "shape", "column-order", "h5sparse_shape", "h5sparse_format"}) {
    if (!object.has_attribute(name)) continue;
    (void)object.string_attribute(name);
    (void)object.strings_attribute(name);
    (void)object.integers_attribute(name);
    (void)object.reference_attribute(name);
  }
}

template <typename T>
void require_size(const Hdf5Dataset& dataset, const Result<std::vector<T>>& values) {
  if (values) fuzz::require(static_cast<int64_t>(values->size()) == dataset.size());
}

void read(const Hdf5Dataset& dataset) {
  read_attributes(dataset);
  fuzz::require(dataset.rows() >= 0 && dataset.row_size() >= 0);
  if (dataset.size() > kMaxElements) return;
  require_size(dataset, dataset.read<double>());
  require_size(dataset, dataset.read<int32_t>());
  require_size(dataset, dataset.read_strings());
  for (const std::string& member : dataset.members()) {
    require_size(dataset, dataset.read_member_strings(member));
    require_size(dataset, dataset.read_member_numbers(member));
  }
}

void walk(const Hdf5Group& group, int depth) {
  read_attributes(group);
  const auto names = group.names();
  if (!names) return;
  for (const std::string& name : *names) {
    if (const auto dataset = group.dataset(name)) {
      read(*dataset);
    } else if (const auto child = group.group(name); child && depth < kMaxDepth) {
      walk(*child, depth + 1);
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  if (const Result<Hdf5Group> root = Hdf5Group::open_file(input.path())) walk(*root, 0);
  return 0;
}
