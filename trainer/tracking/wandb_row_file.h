// The row of a W&B run's history that is not complete yet. `wandb sync` gives a row the next step if its own step is
// not above that of the row before, so a row is written to the run's log when a later step follows, and is in a file
// until then, in which the next attempt finds it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {

// The values of one step.
struct WandbRow {
  int64_t step = 0;
  SystemTime time;
  WandbItems items;
};

struct WandbRowState {
  std::string run_id;
  int64_t last_row_step = 0;  // of the history
  WandbRow row;
};

// Thread-compatible. The file has an entry for each call of save(), with its size and checksum, of which the last
// complete one counts: a process that is killed, and a node that fails, leave the entries before. The first call, and
// one for which the file is too large, replace the file by a rename, so that what an earlier process still writes is
// without effect.
class WandbRowFile {
 public:
  explicit WandbRowFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the last state; nothing if there is none. Fails if the file is not a regular one or cannot be read.
  static Result<std::optional<WandbRowState>> load(const std::filesystem::path& path);

  // The state is in the kernel's cache when it returns. After a failure, the file has the state before.
  Result<void> save(const WandbRowState& state);

  // Makes the saved state survive a failure of the node.
  Result<void> sync();

 private:
  Result<void> replace(const std::string& entry);

  const std::filesystem::path path_;
  FileDescriptor file_;
  size_t size_ = 0;  // of the complete entries
  bool is_synced_ = true;
  bool is_folder_synced_ = true;
};

}  // namespace oarlock
