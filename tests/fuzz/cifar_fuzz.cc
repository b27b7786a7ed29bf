// Reads a CIFAR file. Records are large, so the input is repeated up to their size.
#include "tests/fuzz/input.h"
#include "workloads/formats/image_files.h"

using namespace oarlock;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  std::string bytes;
  const size_t wanted = (size_t{data[0]} * 256 + data[1]) % 8192;
  while (bytes.size() < wanted) bytes += fuzz::text_of(data, size).substr(0, wanted - bytes.size());
  const fuzz::InputFile input(bytes);
  for (const int64_t labels : {1, 2}) {
    const Result<CifarFile> file = CifarFile::open(input.path(), labels);
    if (!file) continue;
    uint64_t sum = 0;
    for (int64_t i = 0; i < file->size(); ++i) {
      sum += file->label(i);
      for (int64_t j = 0; j < CifarFile::kPixels; ++j) sum += file->pixels(i)[j];
    }
    fuzz::require(sum <= bytes.size() * 255 * 2);
  }
  return 0;
}
