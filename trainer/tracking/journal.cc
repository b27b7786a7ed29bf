#include "trainer/tracking/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/status_macros.h"
#include "trainer/tracking/event_codec.h"

namespace oarlock {
namespace {

constexpr std::string_view kMagic = "oarlock\1";
constexpr size_t kHeadSize = 16;       // magic number and position
constexpr size_t kEventHeadSize = 12;  // length and checksum
constexpr uint64_t kCompactBytes = 1 << 20;

template <typename Number>
void append_number(std::string& out, Number value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

template <typename Number>
Number number_at(std::string_view bytes, size_t offset) {
  Number out{};
  std::memcpy(&out, bytes.data() + offset, sizeof out);
  return out;
}

uint32_t checksum(std::string_view data) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

// Removes the first event from `bytes` and returns its data; nothing if it is incomplete or damaged.
std::optional<std::string_view> next_event(std::string_view& bytes) {
  if (bytes.size() < kEventHeadSize) return std::nullopt;
  const auto length = number_at<uint64_t>(bytes, 0);
  if (length > bytes.size() - kEventHeadSize) return std::nullopt;
  const std::string_view data = bytes.substr(kEventHeadSize, length);
  if (number_at<uint32_t>(bytes, sizeof length) != checksum(data)) return std::nullopt;
  bytes.remove_prefix(kEventHeadSize + length);
  return data;
}

std::string head_of(uint64_t base) {
  std::string out(kMagic);
  append_number(out, base);
  return out;
}

Result<void> write_at(int fd, std::string_view bytes, uint64_t offset, const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return fail_errno(written < 0 ? errno : ENOSPC, fmt::format("{}: write", name));
    bytes.remove_prefix(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

}  // namespace

std::filesystem::path Journal::delivered_path() const {
  return std::filesystem::path(path_).replace_extension(".delivered");
}

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& folder, const std::string& name,
                                               uint64_t max_bytes) {
  std::unique_ptr<Journal> out(
      new Journal(folder.empty() ? std::filesystem::path() : folder / (name + ".journal"), max_bytes));
  if (folder.empty()) {
    RETURN_IF_ERROR(out->create(0, ""));
    return out;
  }
  RETURN_IF_ERROR(make_writable_folder(folder));
  RETURN_IF_ERROR(out->load());
  return out;
}

// Replaces the file.
Result<void> Journal::create(uint64_t base, const std::string& content) {
  if (path_.empty()) {
    file_ = FileDescriptor(memfd_create("oarlock-journal", MFD_CLOEXEC));
    if (!file_.open()) return fail_errno(errno, "memfd_create");
    RETURN_IF_ERROR(write_at(file_.get(), head_of(base) + content, 0, "journal in memory"));
  } else {
    RETURN_IF_ERROR(write_file_atomically(path_, head_of(base) + content));
    file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_.open()) return fail_errno(errno, fmt::format("{}: open", path_.string()));
  }
  base_ = base;
  end_ = base + content.size();
  return {};
}

Result<void> Journal::load() {
  delivered_file_ = FileDescriptor(::open(delivered_path().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  if (!delivered_file_.open()) return fail_errno(errno, fmt::format("{}: open", delivered_path().string()));
  if (const Result<std::string> text = read_file(delivered_path(), 32); text)
    std::from_chars(text->data(), text->data() + text->size(), delivered_);
  const Result<std::string> content = read_file(path_);
  if (!content && content.error().code != ExitCode::kNoInput) return tl::make_unexpected(content.error());
  if (!content || content->size() < kHeadSize || !content->starts_with(kMagic)) return create(delivered_, "");
  file_ = FileDescriptor(::open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_.open()) return fail_errno(errno, fmt::format("{}: open", path_.string()));
  base_ = number_at<uint64_t>(*content, kMagic.size());
  std::string_view left = std::string_view(*content).substr(kHeadSize);
  const size_t size = left.size();
  bool is_at_event = false;  // a position inside of an event is that of another file
  do {
    end_ = base_ + size - left.size();
    is_at_event = is_at_event || delivered_ == end_;
  } while (next_event(left));
  if (!is_at_event) delivered_ = base_;
  if (::ftruncate(file_.get(), static_cast<off_t>(kHeadSize + end_ - base_)) != 0)
    return fail_errno(errno, fmt::format("{}: ftruncate", path_.string()));
  return {};
}

Result<void> Journal::append(const std::vector<std::string>& encoded, bool beyond_limit) {
  std::string bytes;
  for (const std::string& event : encoded) {
    append_number(bytes, static_cast<uint64_t>(event.size()));
    append_number(bytes, checksum(event));
    bytes += event;
  }
  const std::lock_guard lock(mutex_);
  if (!beyond_limit && end_ - delivered_ + bytes.size() > max_bytes_) {
    return fail(
        ExitCode::kUnavailable,
        fmt::format("the journal has reached its limit of {} MiB (tracking.journal_limit_mib)", max_bytes_ >> 20));
  }
  // After a failure, the next events overwrite what was written.
  RETURN_IF_ERROR(write_at(file_.get(), bytes, kHeadSize + end_ - base_, path_.string()));
  end_ += bytes.size();
  return {};
}

Result<std::string> Journal::bytes(uint64_t begin, uint64_t end) const {
  std::string out(end - begin, '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(file_.get(), out.data() + done, out.size() - done,
                                  static_cast<off_t>(kHeadSize + begin - base_ + done));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return fail_errno(errno, fmt::format("{}: read", path_.string()));
    if (count == 0) return fail(ExitCode::kIoErr, fmt::format("{}: was truncated", path_.string()));
    done += static_cast<size_t>(count);
  }
  return out;
}

Result<Journal::Batch> Journal::read(size_t max_events, uint64_t max_bytes) {
  const std::lock_guard lock(mutex_);
  Batch out;
  uint64_t position = delivered_;
  while (out.events.size() < max_events && position < end_ && position - delivered_ < max_bytes) {
    ASSIGN_OR_RETURN(const std::string head, bytes(position, position + kEventHeadSize));
    const uint64_t next = position + kEventHeadSize + number_at<uint64_t>(head, 0);
    if (next > end_ || next <= position) return fail(ExitCode::kIoErr, fmt::format("{}: is damaged", path_.string()));
    ASSIGN_OR_RETURN(const std::string data, bytes(position + kEventHeadSize, next));
    position = next;
    std::optional<Event> event = decode_event(data);
    if (event) {
      out.events.push_back(std::move(*event));
      out.ends.push_back(position);
    } else if (!out.ends.empty()) {
      out.ends.back() = position;
    } else {
      delivered_ = position;
    }
  }
  return out;
}

Result<void> Journal::discard(uint64_t end) {
  const std::lock_guard lock(mutex_);
  delivered_ = std::clamp(end, delivered_, end_);
  RETURN_IF_ERROR(write_delivered());
  return delivered_ - base_ >= std::max(kCompactBytes, end_ - delivered_) ? compact() : Result<void>();
}

Result<void> Journal::write_delivered() {
  if (!delivered_file_.open()) return {};
  return write_at(delivered_file_.get(), fmt::format("{:<20}\n", delivered_), 0, delivered_path().string());
}

// The position in <name>.delivered is valid for the old and the new file.
Result<void> Journal::compact() {
  ASSIGN_OR_RETURN(const std::string left, bytes(delivered_, end_));
  return create(delivered_, left);
}

bool Journal::is_empty() const {
  const std::lock_guard lock(mutex_);
  return delivered_ == end_;
}

}  // namespace oarlock
