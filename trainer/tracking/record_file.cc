#include "trainer/tracking/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

#include "common/status_macros.h"

namespace oarlock {

RecordFile::~RecordFile() {
  if (waiting_.empty()) return;
  logger_.warn("tracking: points that waited for space on the disk are lost",
               {{"sink", name_}, {"file", path_.string()}, {"records", waiting_.size()}});
}

void RecordFile::add(std::string record, Importance importance) {
  waiting_.push_back({.data = std::move(record), .importance = importance});
}

Result<void> RecordFile::flush() {
  if (waiting_.empty()) return {};
  Result<void> written = write_waiting();
  if (written) {
    waiting_.clear();
  } else {
    limit_waiting();
  }
  return written;
}

Result<void> RecordFile::write_waiting() {
  if (!file_.open()) RETURN_IF_ERROR(open_next());
  std::string bytes;
  int64_t count = count_;
  const auto append = [&](std::string_view record) { bytes += format_.frame(record, size_ + bytes.size(), ++count); };
  if (size_ == 0) {
    bytes = format_.header;
    for (const std::string& record : format_.first_records()) append(record);
  }
  for (const WaitingRecord& record : waiting_) append(record.data);
  if (const int error = write_all(file_.get(), bytes); error != 0) {
    remove_partial_record();
    return fail_errno(error, fmt::format("{}: write", path_.string()));
  }
  size_ += bytes.size();
  count_ = count;
  is_synced_ = false;
  return {};
}

Result<void> RecordFile::sync() {
  if (!file_.open() || is_synced_) return {};
  if (::fdatasync(file_.get()) != 0) return fail_errno(errno, fmt::format("{}: fdatasync", path_.string()));
  if (!is_folder_synced_) RETURN_IF_ERROR(sync_folder(path_.parent_path()));
  is_synced_ = is_folder_synced_ = true;
  return {};
}

Result<void> RecordFile::open_next() {
  ASSIGN_OR_RETURN(path_, format_.new_path());
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!file_.open()) return fail_errno(errno, fmt::format("{}: open", path_.string()));
  size_ = 0;
  count_ = 0;
  is_folder_synced_ = false;
  return {};
}

// If it cannot be removed, the next records go to a new file. A full disk must not leave a new file for each failure.
void RecordFile::remove_partial_record() {
  if (size_ > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_)) == 0) return;
  if (size_ == 0) ::unlink(path_.c_str());
  file_.close();
}

// Keeps the oldest records, and drops large ones such as images.
void RecordFile::limit_waiting() {
  size_t bytes = 0;
  const size_t dropped = std::erase_if(waiting_, [&bytes](const WaitingRecord& record) {
    if (record.importance == Importance::kEssential) return false;
    if (bytes + record.data.size() > kMaxWaitingBytes) return true;
    bytes += record.data.size();
    return false;
  });
  if (dropped == 0 || std::exchange(has_dropped_, true)) return;
  logger_.warn("tracking: points are dropped, because too many wait for space on the disk",
               {{"sink", name_}, {"file", path_.string()}, {"limit_bytes", kMaxWaitingBytes}});
}

}  // namespace oarlock
