#include "trainer/formats/gzip_file.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {

tl::unexpected<Error> invalid_file(const std::filesystem::path& path, const std::string& reason) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}; fetch the file again", path.string(), reason));
}

void GzipFile::Close::operator()(gzFile_s* file) const { gzclose(file); }

Result<GzipFile> GzipFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(FileDescriptor descriptor, open_regular_file(path));
  gzFile file = gzdopen(descriptor.get(), "rb");
  if (file == nullptr) return fail_errno(ENOMEM, fmt::format("{}: cannot be opened", path.string()));
  static_cast<void>(descriptor.release());
  gzbuffer(file, 1U << 17);
  return GzipFile(path, file);
}

Result<size_t> GzipFile::read(std::span<uint8_t> buffer) {
  size_t have = 0;
  while (have < buffer.size()) {
    const auto want = static_cast<unsigned>(std::min<size_t>(buffer.size() - have, 1U << 20));
    const int got = gzread(file_.get(), buffer.data() + have, want);
    int code = Z_OK;
    const char* text = gzerror(file_.get(), &code);
    if (got < 0 || (code != Z_OK && code != Z_STREAM_END)) {
      if (code == Z_ERRNO) return fail_errno(errno, fmt::format("{}: cannot be read", path_.string()));
      if (code == Z_BUF_ERROR) return invalid_file(path_, "the gzip stream is truncated");
      return invalid_file(path_, fmt::format("the gzip stream is damaged ({})", text));
    }
    if (got == 0) break;
    have += static_cast<size_t>(got);
  }
  return have;
}

int64_t GzipFile::offset() const { return gzoffset(file_.get()); }

}  // namespace oarlock
