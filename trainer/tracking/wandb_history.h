// The history of a W&B run: its last row while that is incomplete, and values that are not numbers.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/error.h"
#include "common/files.h"
#include "trainer/tracking/event.h"
#include "trainer/tracking/wandb_file.h"

namespace oarlock {

// ---- The incomplete row ----------------------------------------------------------------------------------------
// `wandb sync` assigns the next step to a row whose step is not above that of the previous row. A row is therefore
// written to the run's log when a later step follows; until then it is in a file, from which the next attempt reads it.

// The values of one step.
struct WandbRow {
  int64_t step = 0;
  SystemTime time;
  WandbItems items;
};

struct WandbRowState {
  std::string run_id;
  std::string directory{};    // the name of the directory with the last rows; may be empty
  int64_t last_row_step = 0;  // of the history
  WandbRow row;
};

// Thread-compatible. Each call of save() appends an entry with its size and checksum, and the last complete entry is
// the state: a process that is killed, and a node that fails, leave the earlier entries intact. The first call, and a
// call that finds the file too large, replace the file by a rename, so that writes of an earlier process have no
// effect.
class WandbRowFile {
 public:
  explicit WandbRowFile(std::filesystem::path path) : path_(std::move(path)) {}

  // Returns the last state that is accepted; nullopt if the file has none. Fails if the file is not a regular one or
  // cannot be read.
  static Result<std::optional<WandbRowState>> load(
      const std::filesystem::path& path,
      const std::function<bool(const WandbRowState&)>& accepts = [](const WandbRowState&) { return true; });

  // Writes the state to the page cache. After a failure, the file contains the previous state.
  Result<void> save(const WandbRowState& state);

  // Makes the saved state survive a failure of the node.
  Result<void> sync();

 private:
  Result<void> replace(const std::string& entry);

  const std::filesystem::path path_;
  FileDescriptor file_;
  size_t size_ = 0;  // of the complete entries
  bool is_synced_ = true;
  bool is_directory_synced_ = true;
};

// ---- Values that are not numbers, and their files ----------------------------------------------------------------

// Returns a histogram: {"_type":"histogram","bins":[...],"values":[...]} with at most `max_bins` bins.
std::string wandb_histogram(const Histogram& histogram, size_t max_bins = 512);

// Returns an HTML page that shows a text verbatim.
std::string wandb_html(const std::string& text);

// Returns the path of a media file in the directory "files" of a run. It contains the name of the value, reduced to
// slashes and harmless characters.
std::string wandb_media_path(const char* directory, const std::string& name, int64_t step, const std::string& hash,
                             const char* extension);

// Returns the SHA-256 digest of a media file in hexadecimal digits.
std::string hex_sha256(std::string_view content);

}  // namespace oarlock
