// The termination message of a pod with several ranks: each writes a file of its own, the decisive one becomes the
// pod's.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/environment.h"
#include "cli/launch/supervisor.h"
#include "common/error.h"

namespace oarlock::launch {

// What the pod says: the text of the member that the verdict names, of the first member after a success. Where a failed
// one left nothing (SIGKILL, a program that knows nothing of this), a message is made from how it ended and from the
// steps that the others report. `texts` and `ranks` are by member. At most 4096 bytes; empty: nothing to say.
std::string pod_message(const std::vector<std::string>& texts, const std::vector<int>& ranks, const Verdict& verdict);

// $OARLOCK_TERMINATION_LOG, else /dev/termination-log where there is one.
std::optional<std::string> termination_log(const Environment& environment);

// A temporary folder with a file for each member; removed at the end.
class MessageFiles {
 public:
  static Result<MessageFiles> make(const Environment& environment);  // in TMPDIR, /tmp or /dev/shm
  ~MessageFiles();
  MessageFiles(MessageFiles&& other) noexcept : folder_(std::move(other.folder_)) { other.folder_.clear(); }
  MessageFiles& operator=(MessageFiles&&) = delete;

  std::filesystem::path path(int member) const;
  std::string text(int member) const;  // empty: nothing was written

 private:
  explicit MessageFiles(std::filesystem::path folder) : folder_(std::move(folder)) {}
  std::filesystem::path folder_;
};

// Overwrites the file in place: the kubelet has bind-mounted it.
Result<void> write_in_place(const std::filesystem::path& path, const std::string& text);

}  // namespace oarlock::launch
