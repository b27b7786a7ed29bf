// A queue on disk of the events that a server has not received yet. It survives the process: the next attempt delivers
// its events.
//
// The file <name>.journal starts with a magic number, the position of its first event, and a checksum of both, followed
// by the events. Each has a head with a magic number, its length, and checksums of its data and of the head, so that
// readers can skip a damaged event. A position counts the bytes of all events since
// the journal was created, and <name>.delivered holds the position of the first undelivered one, with a checksum. If
// that is damaged, all events in the file are delivered again. To remove delivered
// events, a new file without them occasionally replaces the old one. Both files are also replaced when they are opened,
// unless the copy would be large or there is no space for it, so that writes of an earlier process have no effect.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "trainer/tracking/event.h"

namespace oarlock {

// Thread-safe. At most one process may use a journal; see DirectoryClaim.
class Journal {
 public:
  // The maximum size of an encoded event, and approximately the maximum memory of a method.
  static constexpr uint64_t kMaxEventBytes = uint64_t{32} << 20;

  // Opens or creates the journal <name> in the directory. Removes the end of the file after the last undamaged event,
  // such as an incomplete event of a process that was killed during append(). A file without any event that this
  // version knows is kept as <name>.journal.unreadable. With an empty directory the journal is in memory. Fails with
  // kIoErr and similar codes.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& directory, const std::string& name,
                                               uint64_t max_bytes);

  // Describes the damage that open() found; empty if there was none. An incomplete event at the end is not damage.
  const std::string& warning() const { return warning_; }

  // Appends events of at most kMaxEventBytes each. They are in the page cache when it returns, so that they survive
  // the process. Fails with kUnavailable if more than max_bytes would be undelivered, unless `beyond_limit` is set, and
  // with kIoErr and similar codes; then nothing was appended. On a full disk, the space of events that are delivered is
  // used again.
  Result<void> append(const std::vector<std::string_view>& encoded, bool beyond_limit = false);

  // Makes the appended events survive a failure of the node. Other methods do not wait for it.
  Result<void> sync();

  // Returns up to `max_events` undelivered events, and at least one if there are any, of at most about `max_bytes`
  // together. Damaged events, and those that cannot be decoded, are omitted. `ends` are positions for discard().
  struct Batch {
    std::vector<Event> events;
    std::vector<uint64_t> ends;  // position after each event
    bool is_incomplete = false;  // events were omitted
  };
  Result<Batch> read(size_t max_events, uint64_t max_bytes);

  // Records that all events before this position are delivered.
  Result<void> discard(uint64_t end);

  // Whether all events are delivered.
  bool is_empty() const;

 private:
  // A part of the file that was read ahead.
  struct Window {
    uint64_t begin = 0;
    std::string bytes;
    uint64_t damaged_bytes = 0;  // of the events that were found damaged with this window
  };
  struct Record {
    std::string_view data;  // in the window
    uint64_t begin = 0;
    uint64_t end = 0;
  };

  Journal(std::filesystem::path path, uint64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  Result<void> replace(uint64_t begin, uint64_t end);
  Result<void> write_replacement(uint64_t begin, uint64_t end, const std::filesystem::path& temporary);
  Result<void> load();
  Result<void> set_aside(const char* reason);
  Result<void> replace_both();
  Result<void> open_in_place();
  Result<std::optional<Record>> next_record(Window& window, uint64_t position, uint64_t limit) const;
  Result<std::string_view> view(Window& window, uint64_t position, uint64_t size, uint64_t limit) const;
  Result<void> write_end(std::string_view bytes);
  Result<void> clear_in_place();
  Result<std::string> bytes(uint64_t begin, uint64_t end) const;
  Result<std::string> bytes_at(uint64_t offset, uint64_t size) const;
  Result<void> write_delivered();
  std::filesystem::path delivered_path() const;

  mutable std::mutex mutex_;
  std::filesystem::path path_;  // empty: in memory
  const uint64_t max_bytes_;
  std::string warning_;
  FileDescriptor file_;
  FileDescriptor delivered_file_;
  uint64_t base_ = 0;              // position of the first byte after the head of the file
  uint64_t end_ = 0;               // position after the last event
  uint64_t delivered_ = 0;         // position of the first undelivered event
  bool is_synced_ = true;          // since the last append
  uint64_t next_replacement_ = 0;  // the file is not replaced before this position is delivered
};

}  // namespace oarlock
