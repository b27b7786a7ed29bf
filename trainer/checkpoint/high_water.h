// How far a job has ever come, checkpoint or not: after a crash it tells how many steps were lost.
#pragma once

#include <cstdint>
#include <filesystem>

namespace oarlock {

// A hint of a few bytes in the file "reached" of the checkpoint folder. Written without fsync: it survives the end of
// the process, not always that of the machine. What cannot be written is let be.
class HighWater {
 public:
  explicit HighWater(const std::filesystem::path& root);
  ~HighWater();
  HighWater(const HighWater&) = delete;
  HighWater& operator=(const HighWater&) = delete;

  void raise(int64_t step);

 private:
  int fd_;
  int64_t step_;
};

// 0 where there is none, or none that can be read.
int64_t read_high_water(const std::filesystem::path& root);

}  // namespace oarlock
