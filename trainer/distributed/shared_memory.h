// Memory that all ranks share when they run on one machine, and a barrier over it: what one rank copies, the others
// read, without the kernel and without a connection in between.
//
// The memory belongs to no file system: it is a descriptor of rank 0, which the others open through /proc, and goes
// with the processes, however they end. Ranks in different pods, containers or machines cannot reach it.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "common/file_descriptor.h"
#include "trainer/distributed/process_group.h"

namespace oarlock {

class SharedMemory {
 public:
  static constexpr int kMostRanks = 16;
  static constexpr int kSlots = 2;  // of each rank

  // Called by all ranks of the group. Null on all of them where one cannot reach the memory of rank 0, or where they
  // are more than kMostRanks. `timeout` is how long meet() waits.
  static std::unique_ptr<SharedMemory> open(const RankGroup& group, size_t slot_bytes,
                                            std::chrono::milliseconds timeout);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  size_t slot_bytes() const { return slot_bytes_; }
  // What its rank has written before a meet(), the others may read until they come to the next one, and it may be
  // overwritten when that is over: with two slots in turn a rank never waits for readers.
  std::span<std::byte> slot(int rank, int index) const;

  // Returns when all ranks have called it; what each has written before, all see. Throws a Failure (failure.h) with
  // kPeerLost when a rank has ended, or does not come in time.
  void meet();

 private:
  struct Control;
  struct Place;

  static std::span<std::byte> make(size_t bytes, FileDescriptor& descriptor, Place& place);
  static std::span<std::byte> reach(const Place& place, size_t bytes);
  SharedMemory(std::span<std::byte> mapping, int rank, int world_size, size_t slot_bytes,
               std::chrono::milliseconds timeout);
  Control& control() const;
  void await(int peer) const;
  bool has_left(int peer) const;

  std::span<std::byte> mapping_;  // owned
  int rank_;
  int world_size_;
  size_t slot_bytes_;
  std::chrono::milliseconds timeout_;
  std::vector<FileDescriptor> peers_;  // readable: the process has ended
};

}  // namespace oarlock
