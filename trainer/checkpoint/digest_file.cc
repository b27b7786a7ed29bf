#include "trainer/checkpoint/digest_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include <array>
#include <cerrno>
#include <string_view>
#include <vector>

namespace oarlock {
namespace {

// An open file descriptor and the hash of what went through it.
class HashedFile {
 public:
  explicit HashedFile(int fd) : fd_(fd), hash_(XXH3_createState()) { XXH3_128bits_reset(hash_); }
  ~HashedFile() {
    XXH3_freeState(hash_);
    if (fd_ >= 0) ::close(fd_);
  }
  HashedFile(const HashedFile&) = delete;
  HashedFile& operator=(const HashedFile&) = delete;

  int fd() const { return fd_; }

  void add(std::span<const std::byte> bytes) {
    XXH3_128bits_update(hash_, bytes.data(), bytes.size());
    bytes_ += static_cast<int64_t>(bytes.size());
  }

  // close(2) may be the first to say that the disk is full.
  int close() {
    const int result = ::close(fd_);
    fd_ = -1;
    return result;
  }

  FileDigest digest() const {
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(hash_));
    FileDigest digest{.bytes = bytes_, .xxh3_128 = ""};
    for (const unsigned char byte : canonical.digest) digest.xxh3_128 += fmt::format("{:02x}", byte);
    return digest;
  }

 private:
  int fd_;
  XXH3_state_t* hash_;
  int64_t bytes_ = 0;
};

}  // namespace

struct DigestWriter::Impl {
  Impl(std::filesystem::path p, int fd) : path(std::move(p)), file(fd) {}

  tl::unexpected<Error> failed(int error) const {
    // A process's file size limit and a quota are full disks too; whatever else happens while writing is an I/O error.
    return fail(ExitCode::kIoErr,
                fmt::format("{}: cannot be written: {}", path.string(), std::generic_category().message(error)));
  }

  std::filesystem::path path;
  HashedFile file;
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
  impl_->file.add(bytes);
  while (!bytes.empty()) {
    const ssize_t put = ::write(impl_->file.fd(), bytes.data(), bytes.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return impl_->failed(errno);
    bytes = bytes.subspan(static_cast<size_t>(put));
  }
  return {};
}

Result<void> DigestWriter::write(std::string_view text) { return write(std::as_bytes(std::span(text))); }

Result<FileDigest> DigestWriter::finish() {
  if (::fsync(impl_->file.fd()) != 0) return impl_->failed(errno);
  if (impl_->file.close() != 0) return impl_->failed(errno);
  return impl_->file.digest();
}

Result<FileDigest> digest_of(const std::filesystem::path& path) {
  HashedFile file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.fd() < 0) return fail_errno(errno, fmt::format("{}: cannot be opened", path.string()));
  std::vector<std::byte> buffer(1 << 20);
  for (;;) {
    const ssize_t got = ::read(file.fd(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", path.string()));
    if (got == 0) return file.digest();
    file.add(std::span(buffer).first(static_cast<size_t>(got)));
  }
}

}  // namespace oarlock
