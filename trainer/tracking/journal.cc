#include "trainer/tracking/journal.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string_view>
#include <system_error>

#include "common/number.h"
#include "common/status_macros.h"
#include "trainer/tracking/encoding.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/run_files.h"

namespace oarlock {
namespace {

constexpr std::string_view kMagic = "oarlock\2";
constexpr uint64_t kMaxPosition = uint64_t{1} << 62;  // of a file; positions after it do not overflow
constexpr uint64_t kHeadSize = 20;                    // magic number, position and checksum
constexpr uint32_t kEventMagic = 0xfe2c9d81;          // its bytes are not UTF-8, so that text does not look like a head
constexpr uint64_t kEventHeadSize = 16;  // magic number, length, checksum of the data, checksum of the head
constexpr uint64_t kWindowBytes = 1 << 18;
constexpr uint64_t kCompactBytes = 1 << 20;
constexpr uint64_t kMaxDamagedBytes = 256 << 20;  // of the events of a file; what follows them is taken for damaged
constexpr size_t kMaxDeliveredBytes = 64;         // of <name>.delivered
constexpr uint64_t kMaxCopyBytes = 16 << 20;  // a file with more undelivered events is not replaced when it is opened

uint32_t checksum(std::string_view data) {
  return static_cast<uint32_t>(crc32_z(0, reinterpret_cast<const Bytef*>(data.data()), data.size()));
}

std::string head_of(uint64_t base) {
  std::string out(kMagic);
  append_little_endian(out, base);
  append_little_endian(out, checksum(out));
  return out;
}

std::optional<uint64_t> base_of(std::string_view head) {
  if (head.size() < kHeadSize || !head.starts_with(kMagic)) return std::nullopt;
  const auto base = read_little_endian<uint64_t>(head, kMagic.size());
  if (base > kMaxPosition) return std::nullopt;
  return head.substr(0, kHeadSize) == head_of(base) ? std::optional(base) : std::nullopt;
}

std::string event_head(std::string_view data) {
  std::string out;
  append_little_endian(out, kEventMagic);
  append_little_endian(out, static_cast<uint32_t>(data.size()));
  append_little_endian(out, checksum(data));
  append_little_endian(out, checksum(out));
  return out;
}

// The length of the data after a head; nothing if the bytes are not a head.
std::optional<uint64_t> event_length(std::string_view head) {
  constexpr size_t kChecked = kEventHeadSize - sizeof(uint32_t);
  if (read_little_endian<uint32_t>(head, 0) != kEventMagic) return std::nullopt;
  if (read_little_endian<uint32_t>(head, kChecked) != checksum(head.substr(0, kChecked))) return std::nullopt;
  return read_little_endian<uint32_t>(head, sizeof kEventMagic);
}

// The content of <name>.delivered.
std::string delivered_text(uint64_t position) {
  const std::string digits = fmt::format("{:020}", position);
  return fmt::format("{} {:08x}\n", digits, checksum(digits));
}

std::optional<uint64_t> delivered_position(const std::string& text) {
  const auto position = parse_integer<uint64_t>(std::string_view(text).substr(0, text.find(' ')));
  return position && text == delivered_text(*position) ? position : std::nullopt;
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

Result<std::unique_ptr<Journal>> Journal::open(const std::filesystem::path& directory, const std::string& name,
                                               uint64_t max_bytes) {
  std::unique_ptr<Journal> out(
      new Journal(directory.empty() ? std::filesystem::path() : directory / (name + ".journal"), max_bytes));
  if (directory.empty()) {
    RETURN_IF_ERROR(out->replace(0, 0));
    return out;
  }
  RETURN_IF_ERROR(make_writable_directory(directory));
  RETURN_IF_ERROR(out->load());
  return out;
}

// Replaces the file by one with the bytes between two positions, of which the first becomes its base.
Result<void> Journal::replace(uint64_t begin, uint64_t end) {
  const bool in_memory = path_.empty();
  const std::filesystem::path temporary = in_memory ? "journal in memory" : path_.string() + ".new";
  Result<void> replaced = write_replacement(begin, end, temporary);
  if (!replaced && !in_memory) ::unlink(temporary.c_str());  // it takes space that the checkpoints need
  return replaced;
}

Result<void> Journal::write_replacement(uint64_t begin, uint64_t end, const std::filesystem::path& temporary) {
  const bool in_memory = path_.empty();
  ASSIGN_OR_RETURN(FileDescriptor file, in_memory ? create_memory_file("oarlock-journal") : create_new_file(temporary));
  RETURN_IF_ERROR(write_at(file.get(), head_of(begin), 0, temporary.string()));
  for (uint64_t position = begin; position < end;) {
    const uint64_t next = std::min(position + kWindowBytes, end);
    ASSIGN_OR_RETURN(const std::string part, bytes(position, next));
    RETURN_IF_ERROR(write_at(file.get(), part, kHeadSize + position - begin, temporary.string()));
    position = next;
  }
  if (!in_memory) {
    if (::fsync(file.get()) != 0) return fail_errno(errno, fmt::format("{}: fsync", temporary.string()));
    if (::rename(temporary.c_str(), path_.c_str()) != 0)
      return fail_errno(errno, fmt::format("{}: rename", temporary.string()));
    RETURN_IF_ERROR(sync_directory(path_.parent_path()));
  }
  file_ = std::move(file);
  base_ = begin;
  end_ = end;
  return {};
}

Result<void> Journal::load() {
  if (const Result<std::string> text = read_regular_file(delivered_path(), kMaxDeliveredBytes); text)
    delivered_ = delivered_position(*text).value_or(0);
  struct stat status = {};
  if (::lstat(path_.c_str(), &status) != 0 && errno == ENOENT) return replace_both();
  if (status.st_mode != 0 && !S_ISREG(status.st_mode)) {
    RETURN_IF_ERROR(set_aside("is not a regular file"));
    return replace_both();
  }
  ASSIGN_OR_RETURN(file_, open_regular_file(path_, O_RDONLY));
  const off_t size = ::lseek(file_.get(), 0, SEEK_END);
  if (size < 0) return fail_errno(errno, fmt::format("{}: lseek", path_.string()));
  base_ = end_ = delivered_;
  if (static_cast<uint64_t>(size) < kHeadSize) {  // a new file replaces the earlier one with its head
    warning_ = fmt::format("{}: was truncated", path_.string());
    return replace_both();
  }

  ASSIGN_OR_RETURN(const std::string head, bytes_at(0, kHeadSize));
  const std::optional<uint64_t> base = base_of(head);
  base_ = end_ = base.value_or(0);
  const uint64_t limit = base_ + static_cast<uint64_t>(size) - kHeadSize;
  uint64_t known_bytes = 0;
  bool is_inside = false;  // a position inside of an event is that of another file
  Window window;
  while (true) {
    ASSIGN_OR_RETURN(const std::optional<Record> record, next_record(window, end_, limit));
    if (!record) break;
    is_inside = is_inside || (delivered_ > record->begin && delivered_ < record->end);
    known_bytes += record->end - record->begin;
    end_ = record->end;
  }
  // The bytes after the last event were not persisted; the attempt that resumes writes those events again.
  if (const uint64_t lost = end_ - base_ - known_bytes; lost > 0)
    warning_ = fmt::format("{}: {} bytes are damaged", path_.string(), lost);
  if (!base && known_bytes == 0 && limit > base_) RETURN_IF_ERROR(set_aside("has an unknown format"));
  if (!base || is_inside || delivered_ < base_ || delivered_ > end_) delivered_ = base_;
  if (end_ - delivered_ <= kMaxCopyBytes && replace_both()) return {};
  return open_in_place();
}

// Renames the file, which has another format, is damaged everywhere or is not a regular one.
Result<void> Journal::set_aside(const char* reason) {
  const std::string name = path_.string() + ".unreadable";
  std::string kept = name;
  std::error_code error;
  for (int i = 1; std::filesystem::exists(std::filesystem::symlink_status(kept, error)); ++i)
    kept = fmt::format("{}.{}", name, i);
  if (::rename(path_.c_str(), kept.c_str()) != 0) return fail_errno(errno, fmt::format("{}: rename", path_.string()));
  warning_ = fmt::format("{}: {}, and was renamed to {}", path_.string(), reason, kept);
  return {};
}

// Replaces the files by new ones with the undelivered events. The position is written first: it is valid in the old and
// the new journal. It is not synced, because without it events are repeated only.
Result<void> Journal::replace_both() {
  const std::string temporary = delivered_path().string() + ".new";
  ASSIGN_OR_RETURN(delivered_file_, create_new_file(temporary));
  Result<void> written = write_delivered();
  if (written && ::rename(temporary.c_str(), delivered_path().c_str()) != 0)
    written = fail_errno(errno, fmt::format("{}: rename", temporary));
  if (!written) ::unlink(temporary.c_str());
  RETURN_IF_ERROR(written);
  return replace(delivered_, std::max(delivered_, end_));
}

// Continues with the files of an earlier process, because they are too large to copy, or the disk has no space for
// that.
Result<void> Journal::open_in_place() {
  ASSIGN_OR_RETURN(delivered_file_, open_regular_file(delivered_path(), O_RDWR | O_CREAT));
  RETURN_IF_ERROR(write_delivered());
  ASSIGN_OR_RETURN(file_, open_regular_file(path_, O_RDWR));
  RETURN_IF_ERROR(write_at(file_.get(), head_of(base_), 0, path_.string()));
  if (::ftruncate(file_.get(), static_cast<off_t>(kHeadSize + end_ - base_)) != 0)
    return fail_errno(errno, fmt::format("{}: truncate", path_.string()));
  return {};
}

// Returns `size` bytes of the file from the position on, of which the window may hold more.
Result<std::string_view> Journal::view(Window& window, uint64_t position, uint64_t size, uint64_t limit) const {
  if (position < window.begin || position + size > window.begin + window.bytes.size()) {
    const uint64_t end = std::min(position + std::max(size, kWindowBytes), limit);
    ASSIGN_OR_RETURN(window.bytes, bytes(position, end));
    window.begin = position;
  }
  return std::string_view(window.bytes).substr(position - window.begin, size);
}

// Returns the first complete and undamaged event that begins at or after the position. Looks for its head at each byte,
// because the length in a damaged head is not known. The data of damaged events may overlap, so that their sum is
// bounded.
Result<std::optional<Journal::Record>> Journal::next_record(Window& window, uint64_t position, uint64_t limit) const {
  for (; position + kEventHeadSize <= limit; ++position) {
    ASSIGN_OR_RETURN(const std::string_view head, view(window, position, kEventHeadSize, limit));
    const std::optional<uint64_t> length = event_length(head);
    const uint64_t begin = position + kEventHeadSize;
    if (!length || *length > kMaxEventBytes || *length > limit - begin) continue;
    const auto expected = read_little_endian<uint32_t>(head, 2 * sizeof(uint32_t));
    ASSIGN_OR_RETURN(const std::string_view data, view(window, begin, *length, limit));
    if (checksum(data) == expected) return Record{.data = data, .begin = position, .end = begin + *length};
    window.damaged_bytes += *length;
    if (window.damaged_bytes > kMaxDamagedBytes) break;
  }
  return std::nullopt;
}

Result<void> Journal::append(const std::vector<std::string_view>& encoded, bool beyond_limit) {
  size_t size = 0;
  for (const std::string_view event : encoded) size += kEventHeadSize + event.size();
  std::string bytes;
  bytes.reserve(size);
  for (const std::string_view event : encoded) {
    bytes += event_head(event);
    bytes += event;
  }
  const std::lock_guard lock(mutex_);
  if (!beyond_limit && end_ - delivered_ + bytes.size() > max_bytes_) {
    return fail(
        ExitCode::kUnavailable,
        fmt::format("the journal has reached its limit of {} MiB (tracking.journal_limit_mib)", max_bytes_ >> 20));
  }
  Result<void> written = write_end(bytes);
  // The space of delivered events may suffice.
  if (!written && delivered_ == end_ && end_ > base_ && clear_in_place()) written = write_end(bytes);
  if (written) end_ += bytes.size();
  is_synced_ = is_synced_ && !written;
  return written;
}

Result<void> Journal::sync() {
  FileDescriptor file;
  {
    const std::lock_guard lock(mutex_);
    if (path_.empty() || is_synced_) return {};
    is_synced_ = true;
    file = FileDescriptor(::dup(file_.get()));  // the file may be replaced meanwhile, by one that is synced
  }
  if (file.open() && ::fdatasync(file.get()) == 0) return {};
  const int error = errno;
  const std::lock_guard lock(mutex_);
  is_synced_ = false;
  return fail_errno(error, fmt::format("{}: fdatasync", path_.string()));
}

// Writes after the last event. After a failure, releases the space of a partial write.
Result<void> Journal::write_end(std::string_view bytes) {
  const uint64_t offset = kHeadSize + end_ - base_;
  Result<void> written = write_at(file_.get(), bytes, offset, path_.string());
  // If this fails, too, the next events overwrite it.
  if (!written) static_cast<void>(::ftruncate(file_.get(), static_cast<off_t>(offset)));
  return written;
}

// Removes all events, which are delivered, without a new file. Between the two calls, the file has no events, so that
// its position does not matter.
Result<void> Journal::clear_in_place() {
  if (::ftruncate(file_.get(), kHeadSize) != 0) return fail_errno(errno, fmt::format("{}: truncate", path_.string()));
  RETURN_IF_ERROR(write_at(file_.get(), head_of(end_), 0, path_.string()));
  base_ = end_;
  return {};
}

Result<std::string> Journal::bytes(uint64_t begin, uint64_t end) const {
  return bytes_at(kHeadSize + begin - base_, end - begin);
}

Result<std::string> Journal::bytes_at(uint64_t offset, uint64_t size) const {
  std::string out(size, '\0');
  size_t done = 0;
  while (done < out.size()) {
    const ssize_t count = ::pread(file_.get(), out.data() + done, out.size() - done, static_cast<off_t>(offset + done));
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
  Window window;
  uint64_t position = delivered_;
  while (out.events.size() < max_events && position < end_ && position - delivered_ < max_bytes) {
    ASSIGN_OR_RETURN(const std::optional<Record> record, next_record(window, position, end_));
    if (!record || record->begin != position) out.is_incomplete = true;
    position = record ? record->end : end_;
    std::optional<Event> event = record ? decode_event(record->data) : std::nullopt;
    if (!event) out.is_incomplete = true;
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
  if (delivered_ - base_ < std::max(kCompactBytes, end_ - delivered_) || delivered_ < next_replacement_) return {};
  // The position in <name>.delivered is valid for the old and the new file. A failure, such as a lack of space for the
  // new file, changes nothing, and must not delay the deliveries.
  if (!replace(delivered_, end_)) {
    next_replacement_ = delivered_ + kCompactBytes;
    if (delivered_ == end_) static_cast<void>(clear_in_place());
  }
  return {};
}

Result<void> Journal::write_delivered() {
  if (!delivered_file_.open()) return {};
  return write_at(delivered_file_.get(), delivered_text(delivered_), 0, delivered_path().string());
}

bool Journal::is_empty() const {
  const std::lock_guard lock(mutex_);
  return delivered_ == end_;
}

}  // namespace oarlock
