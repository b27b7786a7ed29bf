#include "workloads/formats/gzip_file.h"

#include <fmt/format.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock {

tl::unexpected<Error> invalid_file(const std::filesystem::path& path, const std::string& reason) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {}; fetch the file again", path.string(), reason));
}

class GzipFile::Stream {
 public:
  Stream(std::filesystem::path path, FileDescriptor file) : path_(std::move(path)), file_(std::move(file)) {}
  ~Stream() { ::inflateEnd(&zlib_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  Result<size_t> read(std::span<uint8_t> buffer) {
    size_t have = 0;
    while (have < buffer.size() && part_ != Part::kEnd) {
      RETURN_IF_ERROR(fill());
      if (part_ == Part::kStart || part_ == Part::kAfterMember) {
        RETURN_IF_ERROR(begin_part());
      } else {
        ASSIGN_OR_RETURN(const size_t got,
                         part_ == Part::kPlain ? copy(buffer.subspan(have)) : inflate(buffer.subspan(have)));
        have += got;
      }
    }
    return have;
  }

  int64_t offset() const { return read_ - static_cast<int64_t>(left()); }

 private:
  enum class Part { kStart, kPlain, kMember, kAfterMember, kEnd };

  static constexpr std::array<uint8_t, 2> kMagic{0x1f, 0x8b};
  static constexpr int kGzipWindow = 15 + 16;  // of inflateInit2(): the largest window, and the format gzip

  size_t left() const { return end_ - begin_; }

  // Reads until the input has the size of a magic number, or the file has ended.
  Result<void> fill() {
    while (left() < kMagic.size() && !at_end_) {
      std::memmove(input_.data(), input_.data() + begin_, left());
      end_ = left();
      begin_ = 0;
      const ssize_t got = ::read(file_.get(), input_.data() + end_, input_.size() - end_);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return fail_errno(errno, fmt::format("{}: cannot be read", path_.string()));
      at_end_ = got == 0;
      end_ += static_cast<size_t>(got);
      read_ += got;
    }
    return {};
  }

  Result<void> begin_part() {
    const bool is_member = left() >= kMagic.size() && std::equal(kMagic.begin(), kMagic.end(), &input_[begin_]);
    if (is_member) {
      const int code = has_zlib_ ? ::inflateReset(&zlib_) : ::inflateInit2(&zlib_, kGzipWindow);
      if (code != Z_OK) return fail_errno(ENOMEM, fmt::format("{}: cannot be decompressed", path_.string()));
      has_zlib_ = true;
      part_ = Part::kMember;
    } else if (left() == 0) {
      part_ = Part::kEnd;
    } else if (part_ == Part::kStart) {
      part_ = Part::kPlain;
    } else if (input_[begin_] == 0) {
      ++begin_;  // padding, as of a tape
    } else {
      return invalid_file(path_, fmt::format("the gzip stream is damaged: other data follows at byte {}", offset()));
    }
    return {};
  }

  size_t copy(std::span<uint8_t> buffer) {
    const size_t size = std::min(buffer.size(), left());
    std::copy_n(&input_[begin_], size, buffer.data());
    begin_ += size;
    if (size == 0) part_ = Part::kEnd;
    return size;
  }

  Result<size_t> inflate(std::span<uint8_t> buffer) {
    const auto room = static_cast<unsigned>(std::min<size_t>(buffer.size(), 1U << 20));
    zlib_.next_in = &input_[begin_];
    zlib_.avail_in = static_cast<unsigned>(left());
    zlib_.next_out = buffer.data();
    zlib_.avail_out = room;
    const int code = ::inflate(&zlib_, Z_NO_FLUSH);
    begin_ = end_ - zlib_.avail_in;
    const size_t got = room - zlib_.avail_out;
    if (code == Z_STREAM_END) {
      part_ = Part::kAfterMember;
    } else if (code == Z_MEM_ERROR) {
      return fail_errno(ENOMEM, fmt::format("{}: cannot be decompressed", path_.string()));
    } else if (code != Z_OK && code != Z_BUF_ERROR) {
      return invalid_file(path_, fmt::format("the gzip stream is damaged ({})",
                                             zlib_.msg == nullptr ? "it needs a dictionary" : zlib_.msg));
    } else if (got == 0 && left() == 0 && at_end_) {
      return invalid_file(path_, "the gzip stream is truncated");
    }
    return got;
  }

  const std::filesystem::path path_;
  const FileDescriptor file_;
  std::array<uint8_t, 1U << 17> input_;
  size_t begin_ = 0;  // of the bytes in input_ that are not decompressed yet
  size_t end_ = 0;
  int64_t read_ = 0;     // bytes of the file
  bool at_end_ = false;  // of the file
  Part part_ = Part::kStart;
  bool has_zlib_ = false;
  z_stream zlib_{};
};

GzipFile::GzipFile(std::unique_ptr<Stream> stream) : stream_(std::move(stream)) {}
GzipFile::~GzipFile() = default;
GzipFile::GzipFile(GzipFile&&) noexcept = default;
GzipFile& GzipFile::operator=(GzipFile&&) noexcept = default;

Result<GzipFile> GzipFile::open(const std::filesystem::path& path) {
  ASSIGN_OR_RETURN(FileDescriptor file, open_regular_file(path));
  return GzipFile(std::make_unique<Stream>(path, std::move(file)));
}

Result<size_t> GzipFile::read(std::span<uint8_t> buffer) { return stream_->read(buffer); }

int64_t GzipFile::offset() const { return stream_->offset(); }

}  // namespace oarlock
