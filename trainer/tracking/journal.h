// Events on the disk that a server has not received yet. Survives the process: the next attempt continues to deliver.
//
// The file <name>.journal starts with a magic number and the position of its first event; then come the events, each
// with its length and checksum. A position counts the bytes of all events since the journal was created, and
// <name>.delivered holds the position of the first undelivered one. Delivered events are removed from the beginning of
// the file from time to time, by a new file that replaces it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "common/error.h"
#include "common/files.h"
#include "trainer/tracking/event.h"

namespace oarlock {

// Thread-safe.
class Journal {
 public:
  // Opens or creates the journal <name> in the folder. Removes the rest of the file after a damaged event, which a
  // process left that was killed during append(). With an empty folder the journal is in memory. Fails with kIoErr and
  // similar codes.
  static Result<std::unique_ptr<Journal>> open(const std::filesystem::path& folder, const std::string& name,
                                               uint64_t max_bytes);

  // Appends events. They are in the kernel's cache when it returns, so that they survive the process. Fails with
  // kUnavailable if more than max_bytes would be undelivered, unless `beyond_limit` is set, and with kIoErr and similar
  // codes; then nothing was appended.
  Result<void> append(const std::vector<std::string>& encoded, bool beyond_limit = false);

  // Returns up to `max_events` undelivered events, and at least one if there are any, of at most about `max_bytes`
  // together. Events that cannot be decoded are omitted. `end` is the position after the last one, for discard().
  struct Batch {
    std::vector<Event> events;
    std::vector<uint64_t> ends;  // position after each event
  };
  Result<Batch> read(size_t max_events, uint64_t max_bytes);

  // Records that all events before this position are delivered.
  Result<void> discard(uint64_t end);

  // Whether all events are delivered.
  bool is_empty() const;

 private:
  Journal(std::filesystem::path path, uint64_t max_bytes) : path_(std::move(path)), max_bytes_(max_bytes) {}

  Result<void> create(uint64_t base, const std::string& content);
  Result<void> load();
  Result<std::string> bytes(uint64_t begin, uint64_t end) const;
  Result<void> compact();
  Result<void> write_delivered();
  std::filesystem::path delivered_path() const;

  mutable std::mutex mutex_;
  std::filesystem::path path_;  // empty: in memory
  const uint64_t max_bytes_;
  FileDescriptor file_;
  FileDescriptor delivered_file_;
  uint64_t base_ = 0;       // position of the first byte after the head of the file
  uint64_t end_ = 0;        // position after the last event
  uint64_t delivered_ = 0;  // position of the first undelivered event
};

}  // namespace oarlock
