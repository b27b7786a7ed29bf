// Reads a plain or gzip file to its end. The content must not depend on the size of the reads, and a gzip bomb must not
// use much memory.
#include "tests/fuzz/input.h"
#include "workloads/formats/gzip_file.h"

using namespace oarlock;

namespace {

constexpr size_t kMaxBytes = 1 << 18;

struct Content {
  std::string bytes;
  bool failed = false;
};

Content read_all(const std::filesystem::path& path, size_t piece) {
  Content content;
  Result<GzipFile> file = GzipFile::open(path);
  if (!file) return {.bytes = {}, .failed = true};
  std::vector<uint8_t> buffer(piece);
  while (content.bytes.size() < kMaxBytes) {
    const Result<size_t> got = file->read(buffer);
    if (!got) return {.bytes = {}, .failed = true};
    fuzz::require(*got <= buffer.size());
    content.bytes.append(buffer.begin(), buffer.begin() + static_cast<std::ptrdiff_t>(*got));
    if (*got < buffer.size()) break;
  }
  content.bytes.resize(std::min(content.bytes.size(), kMaxBytes));
  return content;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const fuzz::InputFile input(fuzz::text_of(data, size));
  const Content whole = read_all(input.path(), kMaxBytes);
  const bool is_gzip = size >= 2 && data[0] == 0x1f && data[1] == 0x8b;
  if (!is_gzip) fuzz::require(!whole.failed && whole.bytes == fuzz::text_of(data, size));
  const Content pieces = read_all(input.path(), 61);
  if (!whole.failed && whole.bytes.size() < kMaxBytes) fuzz::require(!pieces.failed && pieces.bytes == whole.bytes);
  return 0;
}
