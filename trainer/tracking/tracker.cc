#include "trainer/tracking/tracker.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <random>
#include <span>
#include <string>
#include <thread>
#include <utility>

#include "common/random.h"
#include "common/text.h"
#include "trainer/tracking/directory_claim.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/output.h"

namespace oarlock {
namespace {

// Number of intervals after which a running earlier process has read a claim.
constexpr int kClaimIntervals = 4;
// Time limit for the end of the threads: for a cancelled request to return, or for this many intervals.
constexpr std::chrono::milliseconds kEndPatience =
    kClaimIntervals * kDefaultClaimInterval + std::chrono::milliseconds(500);

// The bytes of an event whose size has no fixed limit.
size_t media_bytes(const Event& event) {
  if (const auto* text = std::get_if<Text>(&event.content)) return text->text.size();
  if (const auto* image = std::get_if<Image>(&event.content)) return image->png.size();
  return 0;
}

// Cuts a text that is too long between two characters.
void limit_text(Text& text) {
  const size_t size = text.text.size();
  if (size <= kMaxTextBytes) return;
  size_t end = kMaxTextBytes;
  while (end > 0 && (static_cast<unsigned char>(text.text[end]) & 0xC0) == 0x80) --end;
  text.text.resize(end);
  text.text += fmt::format("\n... (the first {} of {} bytes)\n", end, size);
}

}  // namespace

// The threads own the state together with the tracker.
struct Tracker::State : public std::enable_shared_from_this<Tracker::State> {
  // A sink with a server, and its thread.
  struct Remote {
    RemoteOutput output;
    // Protected by State::mutex.
    bool is_idle = false;    // everything in the journal is delivered
    bool has_ended = false;  // its thread
    uint64_t appended = 0;   // incremented with each append
  };

  State(TrackerOptions tracker_options, const Logger& tracker_logger)
      : options(std::move(tracker_options)),
        logger(tracker_logger),
        claim(options.directory, options.uid, options.attempt) {}

  void run_queue();
  bool must_write() const;
  void claim_directory();
  bool is_owner();
  void begin_after_fencing();
  void report_superseded();
  void stop_as_superseded();
  void release_directory();
  void write(std::span<const Event> events);
  void deliver(Remote& remote);
  void sync();
  bool flush_waiting(bool is_due);
  void open_journals();
  void announce(Remote& remote);

  const TrackerOptions options;
  const Logger logger;
  std::vector<LocalOutput> locals;
  std::vector<std::unique_ptr<Remote>> remotes;

  std::mutex claim_mutex;  // protects the following; not locked while `mutex` is
  DirectoryClaim claim;

  std::mutex mutex;  // protects the following
  std::condition_variable changed;
  std::vector<Event> queue;
  uint64_t queue_bytes = 0;  // of its texts and images
  uint64_t added = 0;        // events
  uint64_t persisted = 0;    // the first ones of them
  uint64_t requested = 0;    // as many are to be written without a delay, and to be synced
  uint64_t synced = 0;       // as many survive a failure of the node
  bool has_dropped = false;
  bool has_large_image = false;  // which was logged
  bool is_superseded = false;    // a later process has claimed the directory: nothing is written any more
  bool is_superseded_reported = false;
  bool is_finishing = false;  // no more events are added; retries are quick
  bool is_stopping = false;   // the threads end
  bool has_waiting = false;   // events are kept in memory that can perhaps be written later
  bool queue_ended = false;
  bool is_released = false;  // after the last thread has ended
};

Tracker::Tracker(const TrackerOptions& options, std::vector<std::unique_ptr<Sink>> sinks, const Logger& logger)
    : state_(std::make_shared<State>(options, logger)) {
  for (std::unique_ptr<Sink>& sink : sinks) {
    sink->set_guard([weak = std::weak_ptr<State>(state_)] {
      const std::shared_ptr<State> state = weak.lock();
      return !state || state->is_owner();
    });
    if (!sink->is_remote()) {
      state_->locals.emplace_back(std::move(sink), logger);
    } else {
      state_->remotes.push_back(
          std::make_unique<State::Remote>(State::Remote{.output = RemoteOutput(std::move(sink), logger)}));
    }
  }
  std::thread([state = state_] { state->run_queue(); }).detach();
}

Tracker::~Tracker() {
  if (!finished_) finish(std::chrono::milliseconds(0));
}

void Tracker::add(Event event) {
  if (auto* text = std::get_if<Text>(&event.content)) limit_text(*text);
  const size_t bytes = media_bytes(event);
  const std::lock_guard lock(state_->mutex);
  if (state_->is_superseded) return;
  if (bytes > kMaxImageBytes) {
    if (!std::exchange(state_->has_large_image, true))
      state_->logger.warn("tracking: an image is too large and is dropped, as are later ones",
                          {{"step", event.step}, {"bytes", bytes}, {"limit", kMaxImageBytes}});
    return;
  }
  if (state_->queue.size() >= state_->options.queue_events ||
      (bytes > 0 && state_->queue_bytes + bytes > state_->options.queue_bytes)) {
    if (!std::exchange(state_->has_dropped, true))
      state_->logger.warn("tracking: points are dropped, because the disk does not respond",
                          {{"queued", state_->queue.size()}});
    return;
  }
  state_->queue.push_back(std::move(event));
  state_->queue_bytes += bytes;
  state_->added += 1;
  if (state_->queue.size() == 1 || state_->must_write()) state_->changed.notify_all();
}

bool Tracker::persist(std::chrono::milliseconds limit) {
  std::unique_lock lock(state_->mutex);
  const uint64_t goal = state_->requested = state_->added;
  state_->changed.notify_all();
  return state_->changed.wait_for(lock, limit, [&] { return state_->synced >= goal || state_->queue_ended; });
}

bool Tracker::wait_for_delivery(std::chrono::milliseconds limit) {
  State& state = *state_;
  std::unique_lock lock(state.mutex);
  state.is_finishing = true;
  state.changed.notify_all();
  return state.changed.wait_for(lock, limit, [&state] {
    return state.persisted == state.added && !state.has_waiting &&
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
          {{"sink", remote->output.name()},
           {"remedy", state.options.directory.empty() ? "set checkpoint.dir, so that the next start delivers them"
                                                      : "the next start of the run delivers them"}});
      remote->output.cancel();
    }
  }
  state.changed.wait_for(lock, kEndPatience, [&state] { return state.is_released; });
}

// ---- the queue's thread --------------------------------------------------------------------------------------------

void Tracker::State::run_queue() {
  claim_directory();
  open_journals();
  std::unique_lock lock(mutex);
  std::vector<Event> events;
  while (true) {
    changed.wait_for(lock, options.claim_interval,
                     [this] { return !queue.empty() || is_stopping || is_superseded || requested > synced; });
    if (!queue.empty()) changed.wait_for(lock, options.batch_interval, [this] { return must_write(); });
    if (is_superseded || (queue.empty() && is_stopping)) break;
    events.swap(queue);
    queue_bytes = 0;
    const bool must_sync = requested > synced;
    lock.unlock();
    const bool may_write = is_owner();
    if (may_write && !events.empty()) write(events);
    const bool is_waiting = may_write && flush_waiting(events.empty());
    if (may_write && must_sync) sync();
    const size_t written = events.size();
    events.clear();
    lock.lock();
    persisted += written;
    if (must_sync) synced = persisted;
    if (written > 0 || must_sync || has_waiting != is_waiting) changed.notify_all();
    has_waiting = is_waiting;
  }
  queue.clear();
  lock.unlock();
  if (is_owner()) flush_waiting(true);
  for (const auto& remote : remotes) remote->output.report_lost_events();
  lock.lock();
  has_waiting = false;
  persisted = synced = added;
  queue_ended = true;
  changed.notify_all();
  lock.unlock();
  release_directory();
}

// Whether the events in the queue are written now, and not together with later ones. Called under the lock.
bool Tracker::State::must_write() const {
  return requested > persisted || is_finishing || is_stopping || is_superseded ||
         queue.size() >= options.queue_events / 2 || queue_bytes >= options.queue_bytes / 2;
}

void Tracker::State::write(std::span<const Event> events) {
  for (LocalOutput& local : locals) local.write(events);
  if (remotes.empty()) return;
  std::vector<std::string> encoded;
  encoded.reserve(events.size());
  for (const Event& event : events) encoded.push_back(encode_event(event));
  for (const auto& remote : remotes) {
    if (remote->output.append(events, encoded)) announce(*remote);
  }
}

void Tracker::State::sync() {
  for (LocalOutput& local : locals) local.sync();
  for (const auto& remote : remotes) remote->output.sync();
}

// Writes what is kept in memory, if it is due: write() has done the same. Returns whether events are kept afterwards
// for which the end of the run waits.
bool Tracker::State::flush_waiting(bool is_due) {
  bool out = false;
  for (LocalOutput& local : locals) {
    if (is_due) local.flush();
    out = out || local.has_waiting();
  }
  for (const auto& remote : remotes) {
    if (is_due && remote->output.append_waiting()) announce(*remote);
    out = out || remote->output.has_waiting();
  }
  return out;
}

// Notifies the thread of the sink that its journal has new events.
void Tracker::State::announce(Remote& remote) {
  const std::lock_guard lock(mutex);
  if (is_superseded) return;
  remote.appended += 1;
  remote.is_idle = false;
  changed.notify_all();
}

// ---- the directory's claim -----------------------------------------------------------------------------------------

// Waits for an earlier process that still writes in the directory. Meanwhile, events are queued.
void Tracker::State::claim_directory() {
  if (options.directory.empty()) return;
  const auto begin = std::chrono::steady_clock::now();
  {
    const std::lock_guard lock(claim_mutex);
    const Result<void> claimed = claim.claim();
    if (!claimed && claimed.error().code != ExitCode::kTempFail) {
      logger.warn("tracking: the directory cannot be claimed; if an earlier process of the run is alive, both report",
                  {{"directory", options.directory.string()}, {"reason", claimed.error().message}});
      return;
    }
  }
  bool is_reported = false;
  while (true) {
    if (!is_owner()) return;
    bool is_free = false;
    bool is_outdated = false;
    bool may_have_other_writer = false;
    {
      const std::lock_guard lock(claim_mutex);
      is_free = claim.try_lock();
      is_outdated = is_free && claim.has_later_attempt_begun();
      may_have_other_writer = !is_free || claim.may_have_hidden_writer();
    }
    if (is_outdated) return report_superseded();
    if (!may_have_other_writer) break;
    const bool has_read_claim = std::chrono::steady_clock::now() - begin > kClaimIntervals * options.claim_interval;
    if (is_free && has_read_claim) return begin_after_fencing();
    if (!std::exchange(is_reported, true))
      logger.info("tracking: waiting for an earlier process of the run to end its report", {});
    if (std::chrono::steady_clock::now() - begin > options.claim_patience) {
      logger.warn(
          "tracking: an earlier process of the run does not release its files; reporting without waiting longer",
          {{"directory", options.directory.string()}});
      return begin_after_fencing();
    }
    std::unique_lock lock(mutex);
    changed.wait_for(lock, options.claim_interval / 4, [this] { return is_stopping; });
    if (!is_stopping) continue;
    lock.unlock();
    if (is_free) {  // for a known time, for which finish() waits
      std::this_thread::sleep_for(options.claim_interval / 4);
      continue;
    }
    if (std::chrono::steady_clock::now() - begin > kClaimIntervals * options.claim_interval) {
      logger.warn(
          "tracking: an earlier process of the run does not release its files; reporting at the end of this one",
          {{"directory", options.directory.string()}});
      return begin_after_fencing();
    }
    logger.warn("tracking: points are dropped, because an earlier process of the run does not release its files",
                {{"directory", options.directory.string()}});
    return stop_as_superseded();
  }
  const std::lock_guard lock(claim_mutex);
  claim.begin();
}

// Begins although an earlier process may still be about to write, and makes its writes ineffective.
void Tracker::State::begin_after_fencing() {
  for (LocalOutput& local : locals) local.fence_earlier_process();
  const std::lock_guard lock(claim_mutex);
  claim.begin();
}

// Whether this process may write: no later process of the run has claimed the directory.
bool Tracker::State::is_owner() {
  if (options.directory.empty()) return true;
  {
    const std::lock_guard lock(mutex);
    if (is_superseded) return false;
  }
  {
    const std::lock_guard lock(claim_mutex);
    if (!claim.is_superseded()) return true;
  }
  report_superseded();
  return false;
}

void Tracker::State::report_superseded() {
  {
    const std::lock_guard lock(mutex);
    if (std::exchange(is_superseded_reported, true)) return;
  }
  logger.warn("tracking: a later process of the run has claimed the directory; this one reports nothing more",
              {{"directory", options.directory.string()}});
  stop_as_superseded();
}

void Tracker::State::stop_as_superseded() {
  const std::lock_guard lock(mutex);
  if (std::exchange(is_superseded, true)) return;
  for (const auto& remote : remotes) {
    if (!remote->is_idle && !is_stopping) remote->output.cancel();
    remote->is_idle = true;
  }
  changed.notify_all();
}

// After the last thread that writes, a later process may begin.
void Tracker::State::release_directory() {
  {
    const std::lock_guard lock(mutex);
    const bool ended =
        std::all_of(remotes.begin(), remotes.end(), [](const auto& remote) { return remote->has_ended; });
    if (!ended || !queue_ended) return;
  }
  {
    const std::lock_guard lock(claim_mutex);
    claim.release();
  }
  const std::lock_guard lock(mutex);
  is_released = true;
  changed.notify_all();
}

// Called by the queue's thread, because a file system may not respond.
void Tracker::State::open_journals() {
  const uint64_t memory_limit = std::min(options.journal_bytes, kMaxMemoryJournalBytes);
  for (const auto& remote : remotes) {
    if (!is_owner() || !remote->output.open_journal(options.directory, options.journal_bytes, memory_limit)) {
      const std::lock_guard lock(mutex);
      remote->is_idle = remote->has_ended = true;
      continue;
    }
    std::thread([state = shared_from_this(), &remote = *remote] { state->deliver(remote); }).detach();
  }
}

// ---- the threads of remote sinks -----------------------------------------------------------------------------------

void Tracker::State::deliver(Remote& remote) {
  std::minstd_rand random{static_cast<std::minstd_rand::result_type>(random_number())};
  std::chrono::milliseconds delay = options.first_retry;
  std::unique_lock lock(mutex);
  while (!is_stopping && !is_superseded) {
    const uint64_t appended = remote.appended;
    lock.unlock();
    const Result<bool> delivered =
        !remote.output.is_delivered() && is_owner() ? remote.output.deliver_some([this] { return is_owner(); }) : false;
    lock.lock();
    if (is_superseded || (is_stopping && !delivered)) break;  // finish() has cancelled the request and logged it
    remote.output.report(delivered);
    if (!delivered) {
      // At the end of the run there is no time for long delays.
      const std::chrono::milliseconds longest = is_finishing ? options.first_retry : delay;
      const auto jittered = std::chrono::milliseconds(
          std::uniform_int_distribution<int64_t>(longest.count() / 2, longest.count())(random));
      delay = std::min(delay * 2, options.max_retry);
      changed.wait_for(lock, jittered,
                       [this, was = is_finishing] { return is_stopping || is_superseded || is_finishing != was; });
      continue;
    }
    delay = options.first_retry;
    if (*delivered || remote.appended != appended) continue;
    remote.is_idle = true;
    changed.notify_all();
    changed.wait(lock, [&] { return is_stopping || is_superseded || remote.appended != appended; });
  }
  remote.has_ended = true;
  changed.notify_all();
  lock.unlock();
  release_directory();
}

}  // namespace oarlock
