// Reads an IDX file, plain or gzip. The number of elements must agree with the header.
#include "tests/fuzz/input.h"
#include "workloads/formats/image_files.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  for (const int dimensions : {1, 3}) {
    const Result<IdxFile> file = read_idx_file(input.path(), dimensions);
    if (!file) continue;
    int64_t count = 1;
    for (const int64_t dim : file->dims) {
      fuzz::require(dim > 0);
      count *= dim;
    }
    fuzz::require(file->dims.size() == static_cast<size_t>(dimensions));
    fuzz::require(static_cast<int64_t>(file->bytes.size()) == count);
  }
  return 0;
}
