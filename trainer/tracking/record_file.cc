#include "trainer/tracking/record_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

#include "common/status_macros.h"
#include "trainer/tracking/run_files.h"

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
  // A later process of the run may have removed the new file.
  if (!written && format_.may_write && !format_.may_write()) written = {};
  if (written) {
    waiting_.clear();
  } else {
    limit_waiting();
  }
  return written;
}

Result<void> RecordFile::write_waiting() {
  if (!file_.open()) RETURN_IF_ERROR(open_next());
  if (format_.may_write && !format_.may_write()) {
    if (size_ == 0) remove_partial_record();
    return {};
  }
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
  if (size_ == 0 && !format_.new_suffix.empty()) {
    const std::string created = path_.string();
    const std::string path = created.substr(0, created.size() - format_.new_suffix.size());
    if (::rename(created.c_str(), path.c_str()) != 0) {
      const int error = errno;
      remove_partial_record();
      return fail_errno(error, fmt::format("{}: rename", created));
    }
    path_ = path;
  }
  size_ += bytes.size();
  count_ = count;
  is_synced_ = false;
  return {};
}

Result<void> RecordFile::sync() {
  if (!file_.open() || is_synced_) return {};
  if (::fdatasync(file_.get()) != 0) return fail_errno(errno, fmt::format("{}: fdatasync", path_.string()));
  if (!is_directory_synced_) RETURN_IF_ERROR(sync_directory(path_.parent_path()));
  is_synced_ = is_directory_synced_ = true;
  return {};
}

Result<void> RecordFile::open_next() {
  ASSIGN_OR_RETURN(path_, format_.new_path());
  path_ += format_.new_suffix;
  file_ = FileDescriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666));
  if (!file_.open()) return fail_errno(errno, fmt::format("{}: open", path_.string()));
  size_ = 0;
  count_ = 0;
  is_directory_synced_ = false;
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

Result<void> replace_by_copy(const std::filesystem::path& path, uint64_t max_bytes) {
  Result<FileDescriptor> source = open_regular_file(path, O_RDONLY);
  if (!source) return source.error().code == ExitCode::kNoInput ? Result<void>() : tl::make_unexpected(source.error());
  struct stat status = {};
  if (::fstat(source->get(), &status) != 0) return fail_errno(errno, fmt::format("{}: stat", path.string()));
  if (static_cast<uint64_t>(status.st_size) > max_bytes) return {};
  // Its name is not that of a file that TensorBoard reads.
  const std::filesystem::path temporary = path.parent_path() / ".copy.new";
  ASSIGN_OR_RETURN(const FileDescriptor copy, create_new_file(temporary));
  std::string buffer(size_t{1} << 20, '\0');
  int error = 0;
  while (error == 0) {
    const ssize_t got = ::read(source->get(), buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    error = write_all(copy.get(), std::string_view(buffer).substr(0, static_cast<size_t>(got)));
  }
  if (error == 0 && (::fchmod(copy.get(), status.st_mode & 07777) != 0 || ::fsync(copy.get()) != 0)) error = errno;
  if (error == 0 && ::rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return sync_directory(path.parent_path());
  ::unlink(temporary.c_str());
  return fail_errno(error, fmt::format("{}: cannot be copied", path.string()));
}

}  // namespace oarlock
