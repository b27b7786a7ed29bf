#include "trainer/tracking/tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "common/status_macros.h"
#include "trainer/tracking/event_codec.h"
#include "trainer/tracking/journal.h"

namespace oarlock {
namespace {

constexpr size_t kBatchEvents = 500;
constexpr uint64_t kBatchBytes = 1 << 20;
constexpr std::chrono::milliseconds kCancelPatience{2000};  // for a request that was cancelled

// Calls sink.write(). An exception is a bug of the sink, or a lack of memory.
Result<size_t> write_to(Sink& sink, std::span<const Event> events) {
  try {
    return sink.write(events);
  } catch (const std::exception& error) {
    return fail(ExitCode::kSoftware, error.what());
  }
}

}  // namespace

// The threads own the state together with the tracker.
struct Tracker::State : public std::enable_shared_from_this<Tracker::State> {
  // A sink with a server.
  struct Remote {
    std::unique_ptr<Sink> sink;
    std::unique_ptr<Journal> journal;
    // Protected by State::mutex.
    bool is_idle = false;        // everything in the journal is delivered
    bool has_ended = false;      // its thread
    bool has_failed = false;     // a failure was logged
    bool has_recovered = false;  // the same for the first success after it
    bool has_dropped = false;    // the same for events that the journal did not take
    uint64_t appended = 0;       // incremented with each append
    bool has_rejected = false;   // the same for an event that the sink rejected; used by its thread only
  };
  // A sink that writes files.
  struct Local {
    std::unique_ptr<Sink> sink;
    bool has_failed = false;
  };

  State(TrackerOptions tracker_options, const Logger& tracker_logger)
      : options(std::move(tracker_options)), logger(tracker_logger) {}

  void run_queue();
  void deliver(Remote& remote);
  void write_local(Local& local, std::span<const Event> events);
  void open_journals();
  void append(Remote& remote, std::span<const Event> events, const std::vector<std::string>& encoded);
  Result<bool> deliver_some(Remote& remote);
  void report(Remote& remote, const Result<bool>& delivered);

  const TrackerOptions options;
  const Logger logger;
  std::vector<std::unique_ptr<Local>> locals;
  std::vector<std::unique_ptr<Remote>> remotes;

  std::mutex mutex;  // protects the following
  std::condition_variable changed;
  std::deque<Event> queue;
  uint64_t added = 0;      // events
  uint64_t persisted = 0;  // the first ones of them
  bool has_dropped = false;
  bool is_finishing = false;  // no more events are added; retries are quick
  bool is_stopping = false;   // the threads end
  bool queue_ended = false;
};

Tracker::Tracker(const TrackerOptions& options, std::vector<std::unique_ptr<Sink>> sinks, const Logger& logger)
    : state_(std::make_shared<State>(options, logger)) {
  for (std::unique_ptr<Sink>& sink : sinks) {
    if (!sink->is_remote()) {
      state_->locals.push_back(std::make_unique<State::Local>(State::Local{.sink = std::move(sink)}));
      continue;
    }
    auto remote = std::make_unique<State::Remote>();
    remote->sink = std::move(sink);
    state_->remotes.push_back(std::move(remote));
  }
  std::thread([state = state_] { state->run_queue(); }).detach();
}

Tracker::~Tracker() {
  if (!finished_) finish(std::chrono::milliseconds(0));
}

void Tracker::add(Event event) {
  const std::lock_guard lock(state_->mutex);
  if (state_->queue.size() >= state_->options.queue_events) {
    if (!std::exchange(state_->has_dropped, true))
      state_->logger.warn("tracking: points are dropped, because the disk does not respond",
                          {{"queued", state_->queue.size()}});
    return;
  }
  state_->queue.push_back(std::move(event));
  state_->added += 1;
  state_->changed.notify_all();
}

bool Tracker::persist(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_for(
      lock, limit, [&, goal = state_->added] { return state_->persisted >= goal || state_->queue_ended; });
}

bool Tracker::wait_for_delivery(std::chrono::milliseconds limit) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.is_finishing = true;
  state.changed.notify_all();
  return state.changed.wait_for(lock, limit, [&state] {
    return state.persisted == state.added &&
           std::all_of(state.remotes.begin(), state.remotes.end(), [](const auto& remote) { return remote->is_idle; });
  });
}

void Tracker::finish(std::chrono::milliseconds limit) {
  finished_ = true;
  const bool complete = wait_for_delivery(limit);
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.is_stopping = true;
  state.changed.notify_all();
  if (!complete) {
    for (const auto& remote : state.remotes) {
      if (remote->is_idle) continue;
      state.logger.warn(
          "tracking: not all points were delivered before the end of the process",
          {{"sink", std::string(remote->sink->name())},
           {"remedy", state.options.folder.empty() ? "set checkpoint.dir, so that the next start delivers them"
                                                   : "the next start of the run delivers them"}});
      remote->sink->cancel();
    }
  }
  state.changed.wait_for(lock, kCancelPatience, [&state] {
    return state.queue_ended && std::all_of(state.remotes.begin(), state.remotes.end(),
                                            [](const auto& remote) { return remote->has_ended; });
  });
}

// ---- the queue's thread --------------------------------------------------------------------------------------------

void Tracker::State::run_queue() {
  open_journals();
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [this] { return !queue.empty() || is_stopping; });
    if (queue.empty()) break;
    const std::vector<Event> events(std::make_move_iterator(queue.begin()), std::make_move_iterator(queue.end()));
    queue.clear();
    lock.unlock();
    for (const auto& local : locals) write_local(*local, events);
    if (!remotes.empty()) {
      std::vector<std::string> encoded;
      for (const Event& event : events) encoded.push_back(encode_event(event));
      for (const auto& remote : remotes) append(*remote, events, encoded);
    }
    lock.lock();
    persisted += events.size();
    changed.notify_all();
  }
  queue_ended = true;
  changed.notify_all();
}

// Called by the queue's thread, because a file system may not respond.
void Tracker::State::open_journals() {
  for (const auto& remote : remotes) {
    const std::string name(remote->sink->name());
    Result<std::unique_ptr<Journal>> journal = Journal::open(options.folder, name, options.journal_bytes);
    if (!journal) {
      logger.warn("tracking: undelivered points are kept in memory only",
                  {{"sink", name}, {"reason", journal.error().message}});
      journal = Journal::open("", name, options.journal_bytes);
    }
    if (!journal) {
      logger.warn("tracking: nothing is reported", {{"sink", name}, {"reason", journal.error().message}});
      const std::lock_guard lock(mutex);
      remote->is_idle = remote->has_ended = true;
      continue;
    }
    remote->journal = std::move(*journal);
    std::thread([state = shared_from_this(), &remote = *remote] { state->deliver(remote); }).detach();
  }
}

void Tracker::State::write_local(Local& local, std::span<const Event> events) {
  while (!events.empty()) {
    const Result<size_t> written = write_to(*local.sink, events);
    if (written) {
      events = events.subspan(std::clamp<size_t>(*written, 1, events.size()));
      continue;
    }
    if (!std::exchange(local.has_failed, true))
      logger.warn("tracking: points could not be written and are dropped",
                  {{"sink", std::string(local.sink->name())}, {"reason", written.error().message}});
    if (written.error().code != ExitCode::kDataErr) return;
    events = events.subspan(1);
  }
}

// The first and the last event of an attempt are kept even if the journal is full: without them, the others could not
// be delivered.
void Tracker::State::append(Remote& remote, std::span<const Event> events, const std::vector<std::string>& encoded) {
  if (!remote.journal) return;
  std::vector<std::string> taken;
  for (size_t i = 0; i < events.size(); ++i) {
    if (remote.sink->takes(events[i])) taken.push_back(encoded[i]);
  }
  if (taken.empty()) return;
  Result<void> appended = remote.journal->append(taken);
  if (!appended && appended.error().code == ExitCode::kUnavailable) {
    std::vector<std::string> ends_of_attempts;
    for (size_t i = 0; i < events.size(); ++i) {
      if (std::holds_alternative<RunStarted>(events[i].content) ||
          std::holds_alternative<RunFinished>(events[i].content))
        ends_of_attempts.push_back(encoded[i]);
    }
    static_cast<void>(remote.journal->append(ends_of_attempts, /*beyond_limit=*/true));
  }
  const std::lock_guard lock(mutex);
  remote.appended += 1;
  remote.is_idle = false;
  changed.notify_all();
  if (appended || std::exchange(remote.has_dropped, true)) return;
  logger.warn("tracking: points are dropped",
              {{"sink", std::string(remote.sink->name())}, {"reason", appended.error().message}});
}

// ---- the threads of remote sinks -----------------------------------------------------------------------------------

void Tracker::State::deliver(Remote& remote) {
  std::minstd_rand random{std::random_device{}()};
  std::chrono::milliseconds delay = options.first_retry;
  std::unique_lock lock(mutex);
  while (!is_stopping) {
    const uint64_t appended = remote.appended;
    lock.unlock();
    const Result<bool> delivered = deliver_some(remote);
    lock.lock();
    report(remote, delivered);
    if (!delivered) {
      // At the end of the run there is no time for long delays.
      const std::chrono::milliseconds longest = is_finishing ? options.first_retry : delay;
      const auto jittered = std::chrono::milliseconds(
          std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random));
      delay = std::min(delay * 2, options.max_retry);
      changed.wait_for(lock, jittered, [this, was = is_finishing] { return is_stopping || is_finishing != was; });
      continue;
    }
    delay = options.first_retry;
    if (*delivered || remote.appended != appended) continue;
    remote.is_idle = true;
    changed.notify_all();
    changed.wait(lock, [&] { return is_stopping || remote.appended != appended; });
  }
  remote.has_ended = true;
  changed.notify_all();
}

// Returns false if the journal is empty.
Result<bool> Tracker::State::deliver_some(Remote& remote) {
  ASSIGN_OR_RETURN(const Journal::Batch batch, remote.journal->read(kBatchEvents, kBatchBytes));
  if (batch.events.empty()) return false;
  Result<size_t> written = write_to(*remote.sink, batch.events);
  if (!written && written.error().code == ExitCode::kDataErr) {
    if (!std::exchange(remote.has_rejected, true))
      logger.warn("tracking: a point was rejected and is dropped, as are others that are rejected later",
                  {{"sink", std::string(remote.sink->name())},
                   {"step", batch.events.front().step},
                   {"reason", written.error().message}});
    written = 1;
  }
  if (!written) return tl::make_unexpected(written.error());
  RETURN_IF_ERROR(remote.journal->discard(batch.ends[std::clamp<size_t>(*written, 1, batch.ends.size()) - 1]));
  return true;
}

// Logs the first failure and the first success after it. Called under the lock.
void Tracker::State::report(Remote& remote, const Result<bool>& delivered) {
  const std::string name(remote.sink->name());
  if (!delivered && !std::exchange(remote.has_failed, true)) {
    logger.warn("tracking: points are kept until they can be delivered; training continues",
                {{"sink", name}, {"reason", delivered.error().message}});
  } else if (delivered && *delivered && remote.has_failed && !std::exchange(remote.has_recovered, true)) {
    logger.info("tracking: points are delivered again", {{"sink", name}});
  }
}

}  // namespace oarlock
