// The termination message of a pod with several ranks. Each rank writes its own file; the message of the decisive rank
// becomes that of the pod.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/launch/process.h"
#include "cli/launch/supervisor.h"
#include "common/error.h"
#include "common/files.h"

namespace oarlock::launch {

// The rank of a member that starts several ranks itself.
inline constexpr int kUnknownRank = -1;

// Returns the termination message of the pod: the message of the decisive member, or of the first member if all
// succeeded. If the decisive member wrote none (SIGKILL, or a program without support for these messages), the function
// creates one from its exit status, `reasons`, and the steps that the members reported, without a step if none did; for
// a node that has left its group, one with the reason kReasonDisconnected, and for a program that a signal stopped and
// that ended with exit code 0, by that signal or by SIGKILL, one with kReasonInterrupted. If all succeeded, it creates
// one with kReasonCompleted, provided that a member has reported a step. `texts`, `ranks` and `reasons` are indexed by
// member; `reasons` may be empty. The result has at most 4096 bytes and may be empty.
std::string pod_message(const std::vector<std::string>& texts, const std::vector<int>& ranks, const GroupResult& result,
                        const std::vector<std::string>& reasons = {});

// Applies the operator's rule to a group that a signal stopped: a member that ended with exit code 0 after the signal
// is complete only if its termination message reports that (reports_completion()). Otherwise the result has the exit
// code kTempFail and that member. `texts` is indexed by member.
GroupResult resolve_interruption(GroupResult result, const std::vector<std::string>& texts);

// Returns the exception in a file that torch.distributed.elastic's @record wrote to TORCHELASTIC_ERROR_FILE, as one
// line of at most 1000 bytes; empty if the text is not such a file. The text may have any content.
std::string reason_of_error_file(const std::string& text);

// Returns the path of the termination message of the pod: $OARLOCK_TERMINATION_LOG, else /dev/termination-log if it is
// writable.
std::optional<std::string> termination_log(const Environment& environment);

// A temporary directory with a file for each member, which exists as long as this object.
class MessageFiles {
 public:
  static Result<MessageFiles> make(
      const Environment& environment);  // in $TMPDIR, /tmp, /dev/shm, or next to this program

  std::filesystem::path path(int member) const;
  const std::filesystem::path& directory() const { return directory_.path(); }
  // Returns at most the first 16 MiB that the member wrote; empty if it wrote nothing, or not to a regular file.
  std::string text(int member) const;

 private:
  explicit MessageFiles(ScratchDirectory directory) : directory_(std::move(directory)) {}
  ScratchDirectory directory_;
};

// Returns the termination message in a file; empty if the file is not a regular file.
std::string message_in(const std::filesystem::path& path);

// Removes files of an earlier start of a rank, and empties the termination message of the pod, if the rank wrote it:
// the pod must not end with the message of a failure from which it has recovered. Errors are ignored.
void remove_messages(const std::vector<std::filesystem::path>& files, const std::filesystem::path& pod_message);

// Overwrites a file in place, since the kubelet bind-mounts the file of a termination message.
Result<void> write_message(const std::filesystem::path& path, const std::string& text);

}  // namespace oarlock::launch
