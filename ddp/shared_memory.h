// Memory that all ranks on one machine share, and a barrier over it. Data that one rank copies into the memory is read
// by the others without a system call or a connection in between.
//
// The memory belongs to no file system: it is a file descriptor of rank 0, which the other ranks open through /proc,
// and the kernel releases it when the processes exit, however they exit. Ranks in different pods, containers or
// machines cannot reach it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/files.h"
#include "ddp/process_group.h"

namespace oarlock {

// Not thread-safe. Each rank uses its own object.
class SharedMemory {
 public:
  static constexpr int kMaxRanks = 16;
  static constexpr int kSlots = 2;  // per rank

  // Called by all ranks of the group. Returns null on all ranks if one of them cannot open the memory of rank 0, or if
  // there are more than kMaxRanks ranks. `timeout` limits how long barrier() waits.
  static std::unique_ptr<SharedMemory> open(const ProcessGroup& group, size_t slot_bytes,
                                            std::chrono::milliseconds timeout);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  size_t slot_bytes() const { return slot_bytes_; }
  // A slot is written by its rank before a barrier() and read by all ranks after it. It may be overwritten after the
  // following barrier(); by alternating between two slots, a rank never waits for readers.
  std::span<std::byte> slot(int rank, int index) const;

  // Returns when all ranks have called it. Writes before the barrier are visible to all ranks after it. Throws an
  // ErrorException (common/error.h) with kPeerLost if a rank exits or does not arrive in time, or if this rank has
  // left the group (ProcessGroup::leave()).
  void barrier();

 private:
  struct Control;
  struct Location;

  static std::span<std::byte> create_mapping(size_t bytes, FileDescriptor& descriptor, Location& location);
  static std::span<std::byte> open_mapping(const Location& location, size_t bytes);
  SharedMemory(std::span<std::byte> mapping, ProcessGroup group, size_t slot_bytes, std::chrono::milliseconds timeout);
  Control& control() const;
  void wait_for(int peer) const;
  bool has_exited(int peer) const;

  std::span<std::byte> mapping_;  // owned
  ProcessGroup group_;
  int rank_;
  int world_size_;
  size_t slot_bytes_;
  std::chrono::milliseconds timeout_;
  std::vector<FileDescriptor> peers_;  // pidfds, which become readable when the process exits
};

}  // namespace oarlock
