#include "trainer/data/cifar_file.h"

#include <fmt/format.h>

namespace oarlock {

Result<CifarFile> CifarFile::open(const std::filesystem::path& path, int64_t labels) {
  // Labels and statistics are read from end to end, and the page cache keeps what training reads afterwards.
  Result<MappedFile> file = MappedFile::open(path, MappedFile::Access::kSequential);
  if (!file) return tl::make_unexpected(file.error());
  const auto bytes = static_cast<int64_t>(file->bytes().size());
  const int64_t record = labels + kPixels;
  const int64_t size = bytes / record;
  if (bytes % record != 0) {
    return fail(
        ExitCode::kDataErr,
        fmt::format("{}: {} bytes are not a multiple of {}, the size of a record: record {} (from 0) ends after "
                    "{} bytes; the file is truncated or of another kind: fetch it again",
                    path.string(), bytes, record, size, bytes % record));
  }
  if (size == 0) return fail(ExitCode::kDataErr, fmt::format("{}: has no records; fetch it again", path.string()));
  return CifarFile(std::move(*file), labels, size);
}

}  // namespace oarlock
