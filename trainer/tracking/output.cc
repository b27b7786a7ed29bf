#include "trainer/tracking/output.h"

#include <algorithm>
#include <exception>
#include <string_view>
#include <variant>

#include "common/status_macros.h"

namespace oarlock {
namespace {

constexpr size_t kBatchEvents = 500;
constexpr uint64_t kBatchBytes = 1 << 20;
// Limit of the encoded events that wait for space on the disk of a journal. The first and the last event of an attempt
// are not counted.
constexpr size_t kMaxWaitingBytes = size_t{1} << 20;

// Calls a method of a sink. An exception is a bug of the sink, or a lack of memory.
template <typename Function>
auto call(Function function) -> decltype(function()) {
  try {
    return function();
  } catch (const std::exception& error) {
    return fail(ExitCode::kSoftware, error.what());
  }
}

// The first and the last event of an attempt, without which the others could not be delivered.
bool is_end_of_attempt(const Event& event) {
  return std::holds_alternative<RunStarted>(event.content) || std::holds_alternative<RunFinished>(event.content);
}

// Whether the next call can perhaps write what this failure has kept.
bool may_end(ExitCode failure) {
  return failure != ExitCode::kOk && failure != ExitCode::kNoPermission && failure != ExitCode::kCantCreate;
}

// A failure to sync costs points only if the node fails, too. The first one is logged.
void report_sync(const Logger& logger, const std::string& sink, const Result<void>& synced, bool& is_reported) {
  if (!synced && !std::exchange(is_reported, true))
    logger.warn("tracking: points before a checkpoint may be missing if the node fails",
                {{"sink", sink}, {"reason", synced.error().message}});
}

}  // namespace

// ---- A sink that writes files --------------------------------------------------------------------------------------

void LocalOutput::fence_earlier_process() {
  if (const Result<void> fenced = call([&] { return sink_->fence_earlier_process(); }); !fenced)
    logger_.warn("tracking: points may be repeated, if an earlier process of the run is alive",
                 {{"sink", name()}, {"reason", fenced.error().message}});
}

void LocalOutput::write(std::span<const Event> events) {
  while (!events.empty()) {
    const Result<size_t> written = call([&] { return sink_->write(events); });
    report(written ? Result<void>() : tl::make_unexpected(written.error()));
    if (!written && written.error().code != ExitCode::kDataErr) {
      failure_ = written.error().code;
      return;
    }
    events = events.subspan(std::clamp<size_t>(written.value_or(1), 1, events.size()));
    failure_ = ExitCode::kOk;
  }
}

void LocalOutput::flush() {
  if (failure_ == ExitCode::kOk) return;
  const Result<void> flushed = call([&] { return sink_->flush(); });
  report(flushed);
  failure_ = flushed ? ExitCode::kOk : flushed.error().code;
}

void LocalOutput::sync() { report_sync(logger_, name(), sink_->sync(), has_sync_failed_); }

bool LocalOutput::has_waiting() const { return may_end(failure_); }

// Logs the first failure and the first success after it.
void LocalOutput::report(const Result<void>& written) {
  if (!written && !std::exchange(has_failed_, true)) {
    logger_.warn("tracking: points cannot be written, and are kept in memory within a limit; training continues",
                 {{"sink", name()}, {"reason", written.error().message}});
  } else if (written && has_failed_ && !std::exchange(has_recovered_, true)) {
    logger_.info("tracking: points are written again", {{"sink", name()}});
  }
}

// ---- A sink with a server: the thread of the queue -----------------------------------------------------------------

bool RemoteOutput::open_journal(const std::filesystem::path& directory, uint64_t max_bytes, uint64_t max_memory_bytes) {
  Result<std::unique_ptr<Journal>> journal =
      Journal::open(directory, name(), directory.empty() ? max_memory_bytes : max_bytes);
  if (!journal) {
    logger_.warn("tracking: undelivered points are kept in memory only",
                 {{"sink", name()}, {"reason", journal.error().message}});
    journal = Journal::open("", name(), max_memory_bytes);
  }
  if (!journal) {
    logger_.warn("tracking: nothing is reported", {{"sink", name()}, {"reason", journal.error().message}});
    return false;
  }
  if (!(*journal)->warning().empty())
    logger_.warn("tracking: undelivered points could not be read",
                 {{"sink", name()}, {"reason", (*journal)->warning()}});
  journal_ = std::move(*journal);
  return true;
}

bool RemoteOutput::append(std::span<const Event> events, const std::vector<std::string>& encoded) {
  if (!journal_) return false;
  for (size_t i = 0; i < events.size(); ++i) {
    if (sink_->takes(events[i])) waiting_.push_back({encoded[i], is_end_of_attempt(events[i])});
  }
  return append_waiting();
}

bool RemoteOutput::append_waiting() {
  if (waiting_.empty()) return false;
  std::vector<std::string_view> taken;
  for (const WaitingEvent& event : waiting_) taken.emplace_back(event.encoded);
  Result<void> appended = journal_->append(taken);
  if (!appended && appended.error().code == ExitCode::kUnavailable) {
    // The ends of attempts are kept even if the journal has reached its limit.
    drop_waiting(appended.error().message, 0);
    taken.clear();
    for (const WaitingEvent& event : waiting_) taken.emplace_back(event.encoded);
    appended = journal_->append(taken, /*beyond_limit=*/true);
  }
  size_t count = appended ? taken.size() : 0;
  // There may be space for a part of them.
  while (!appended && count < taken.size() && journal_->append({taken[count]}, /*beyond_limit=*/true)) ++count;
  waiting_.erase(waiting_.begin(), waiting_.begin() + static_cast<ptrdiff_t>(count));
  disk_failure_ = waiting_.empty() ? ExitCode::kOk : appended.error().code;
  if (!waiting_.empty()) {
    if (!std::exchange(has_disk_failed_, true))
      logger_.warn("tracking: points cannot be written, and are kept in memory within a limit; training continues",
                   {{"sink", name()}, {"reason", appended.error().message}});
    drop_waiting(appended.error().message, kMaxWaitingBytes);
  } else if (has_disk_failed_ && !std::exchange(has_disk_recovered_, true)) {
    logger_.info("tracking: points are written again", {{"sink", name()}});
  }
  return count > 0;
}

bool RemoteOutput::has_waiting() const { return may_end(disk_failure_); }

void RemoteOutput::sync() {
  if (journal_) report_sync(logger_, name(), journal_->sync(), has_sync_failed_);
}

void RemoteOutput::report_lost_events() const {
  if (!waiting_.empty())
    logger_.warn("tracking: points that waited for space on the disk are lost",
                 {{"sink", name()}, {"events", waiting_.size()}});
}

// Keeps the first waiting events, of at most `max_bytes` together, and the ends of attempts.
void RemoteOutput::drop_waiting(const std::string& reason, size_t max_bytes) {
  size_t bytes = 0;
  const size_t dropped = std::erase_if(waiting_, [&](const WaitingEvent& event) {
    if (event.is_essential) return false;
    if (bytes + event.encoded.size() > max_bytes) return true;
    bytes += event.encoded.size();
    return false;
  });
  if (dropped == 0 || std::exchange(has_dropped_, true)) return;
  logger_.warn("tracking: points are dropped", {{"sink", name()}, {"reason", reason}});
}

// ---- A sink with a server: the thread that delivers ----------------------------------------------------------------

Result<bool> RemoteOutput::deliver_some(const std::function<bool()>& is_owner) {
  ASSIGN_OR_RETURN(const Journal::Batch batch, journal_->read(kBatchEvents, kBatchBytes));
  if (batch.is_incomplete && !std::exchange(has_unreadable_, true))
    logger_.warn("tracking: undelivered points are damaged, or those of another version, and are dropped",
                 {{"sink", name()}});
  if (batch.events.empty()) return false;
  Result<size_t> written = call([&] { return sink_->write(batch.events); });
  if (!written && written.error().code == ExitCode::kDataErr) {
    if (!std::exchange(has_rejected_, true))
      logger_.warn("tracking: a point was rejected and is dropped, as are others that are rejected later",
                   {{"sink", name()}, {"step", batch.events.front().step}, {"reason", written.error().message}});
    written = 1;
  }
  if (!written) return tl::make_unexpected(written.error());
  if (!is_owner()) return false;  // a later process has the journal
  RETURN_IF_ERROR(journal_->discard(batch.ends[std::clamp<size_t>(*written, 1, batch.ends.size()) - 1]));
  return true;
}

void RemoteOutput::report(const Result<bool>& delivered) {
  if (!delivered && !std::exchange(has_failed_, true)) {
    logger_.warn("tracking: points are kept until they can be delivered; training continues",
                 {{"sink", name()}, {"reason", delivered.error().message}});
  } else if (delivered && *delivered && has_failed_ && !std::exchange(has_recovered_, true)) {
    logger_.info("tracking: points are delivered again", {{"sink", name()}});
  }
}

}  // namespace oarlock
