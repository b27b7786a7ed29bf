#include "ddp/digest_file.h"

#define XXH_INLINE_ALL  // compiles its functions here, so that a program does not need the shared library
#include <xxhash.h>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <string_view>
#include <utility>
#include <vector>

#include "common/files.h"
#include "common/status_macros.h"
#include "common/text.h"

namespace oarlock {
namespace {

// Small enough that the bytes are still in the CPU cache when they are hashed.
constexpr size_t kChunk = 1 << 20;

}  // namespace

// ---- the digest ----------------------------------------------------------------------------------------------------

struct DigestBuilder::State {
  XXH3_state_t hash;
};

DigestBuilder::DigestBuilder() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
DigestBuilder::~DigestBuilder() = default;
DigestBuilder::DigestBuilder(DigestBuilder&&) noexcept = default;

void DigestBuilder::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
  bytes_ += static_cast<int64_t>(bytes.size());
}

FileDigest DigestBuilder::digest() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->hash));
  return {.bytes = bytes_, .xxh3_128 = to_hex(canonical.digest)};
}

FileDigest digest_of_text(std::string_view content) {
  DigestBuilder builder;
  builder.add(std::as_bytes(std::span(content)));
  return builder.digest();
}

// ---- writing -------------------------------------------------------------------------------------------------------

struct DigestWriter::Impl {
  Impl(std::filesystem::path p, int fd) : path(std::move(p)), file(fd) {}

  tl::unexpected<Error> failed(int error) const {
    // A file size limit (EFBIG) and a quota (EDQUOT) are full disks, and every other write error is an I/O error.
    return fail(ExitCode::kIoErr,
                fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(error)));
  }

  std::filesystem::path path;
  FileDescriptor file;
  DigestBuilder hash;
};

DigestWriter::DigestWriter(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DigestWriter::DigestWriter(DigestWriter&&) noexcept = default;
DigestWriter::~DigestWriter() = default;

Result<DigestWriter> DigestWriter::create(const std::filesystem::path& path) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd < 0) {
    const int error = errno;
    const bool full = error == ENOSPC || error == EDQUOT;
    return fail(full ? ExitCode::kIoErr : ExitCode::kCantCreate,
                fmt::format("{}: cannot be created: {}", path.string(), std::generic_category().message(error)));
  }
  return DigestWriter(std::make_unique<Impl>(path, fd));
}

Result<void> DigestWriter::write(std::span<const std::byte> bytes) {
  impl_->hash.add(bytes);
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (const int error = write_all(impl_->file.get(), text); error != 0) return impl_->failed(error);
  return {};
}

Result<void> DigestWriter::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Result<FileDigest> DigestWriter::finish() {
  if (::fsync(impl_->file.get()) != 0) return impl_->failed(errno);
  // close(2) may be the first to report that the disk is full.
  if (::close(impl_->file.release()) != 0) return impl_->failed(errno);
  return impl_->hash.digest();
}

// ---- reading -------------------------------------------------------------------------------------------------------

struct DigestReader::Impl {
  Impl(std::filesystem::path p, FileDescriptor fd) : path(std::move(p)), file(std::move(fd)) {}

  std::filesystem::path path;
  FileDescriptor file;
  uint64_t size = 0;
  DigestBuilder hash;
};

DigestReader::DigestReader(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DigestReader::DigestReader(DigestReader&&) noexcept = default;
DigestReader::~DigestReader() = default;

Result<DigestReader> DigestReader::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(FileDescriptor file, open_regular_file(path));
  struct stat status{};
  if (::fstat(file.get(), &status) != 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
  auto impl = std::make_unique<Impl>(path, std::move(file));
  impl->size = static_cast<uint64_t>(status.st_size);
  return DigestReader(std::move(impl));
}

uint64_t DigestReader::size() const { return impl_->size; }

Result<size_t> DigestReader::read_some(std::span<std::byte> target) {
  for (;;) {
    const ssize_t got = ::read(impl_->file.get(), target.data(), std::min(target.size(), kChunk));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", impl_->path.string()));
    impl_->hash.add(target.first(static_cast<size_t>(got)));
    return static_cast<size_t>(got);
  }
}

Result<void> DigestReader::read(std::span<std::byte> target) {
  while (!target.empty()) {
    ASSIGN_OR_RETURN(const size_t got, read_some(target));
    if (got == 0) return fail(ExitCode::kDataErr, fmt::format("{}: unexpected end of file", impl_->path.string()));
    target = target.subspan(got);
  }
  return {};
}

FileDigest DigestReader::digest() const { return impl_->hash.digest(); }

Result<FileDigest> digest_of(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(DigestReader file, DigestReader::open(path));
  std::vector<std::byte> buffer(kChunk);
  for (;;) {
    ASSIGN_OR_RETURN(const size_t got, file.read_some(buffer));
    if (got == 0) return file.digest();
  }
}

}  // namespace oarlock
