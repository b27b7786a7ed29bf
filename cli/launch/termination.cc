#include "cli/launch/termination.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/contract.h"
#include "common/files.h"
#include "common/json_access.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr size_t kErrorFileBytes = size_t{16} << 20;  // the file has the traceback, too
constexpr int kErrorFileDepth = 16;
constexpr size_t kErrorReasonLength = 1000;

}  // namespace

std::string reason_of_error_file(const std::string& text) {
  const nlohmann::json json = parse_untrusted_json(text, kErrorFileBytes, kErrorFileDepth);
  if (!json.is_object() || !json.contains("message")) return "";
  const nlohmann::json* message = &json["message"];
  if (message->is_object() && message->contains("message")) message = &(*message)["message"];
  if (!message->is_string()) return "";
  std::string line(trim(message->get_ref<const std::string&>()));
  return shortened(line.substr(0, line.find('\n')), kErrorReasonLength);
}

GroupResult resolve_interruption(GroupResult result, const std::vector<std::string>& texts) {
  if (result.interrupted_by == 0 || result.exit_code != 0) return result;
  const auto stopped = std::ranges::find_if(
      result.stopped, [&](int member) { return !reports_completion(texts[static_cast<size_t>(member)]); });
  if (stopped == result.stopped.end()) return result;
  result.member = *stopped;
  result.status = {};
  result.exit_code = to_int(ExitCode::kTempFail);
  return result;
}

std::string pod_message(const std::vector<std::string>& texts, const std::vector<int>& ranks, const GroupResult& result,
                        const std::vector<std::string>& reasons) {
  const auto member = static_cast<size_t>(std::max(result.member, 0));
  const bool is_complete = result.member < 0 && result.exit_code == 0 && result.step >= 0;
  const bool is_made = !result.disconnected.empty() || (texts[member].empty() && (result.member >= 0 || is_complete));
  if (!is_made) return texts[member].substr(0, kTerminationMessageLimit);
  TerminationMessage made;
  made.step = result.step;
  made.checkpoint_step = result.checkpoint_step;
  made.rank = ranks[member];
  const std::string who = made.rank == kUnknownRank ? "the command" : fmt::format("rank {}", made.rank);
  made.reason = result.status.signal != 0 ? "KilledBySignal" : "Failed";
  made.message = fmt::format("{} ended with {} and left no message", who, describe(result.status));
  if (member < reasons.size() && !reasons[member].empty())
    made.message = fmt::format("{} ended with {}: {}", who, describe(result.status), reasons[member]);
  const int code = result.status.exit_code();              // a shell may return that of a signal
  if (result.interrupted_by != 0 && result.status.ok()) {  // see resolve_interruption()
    made.reason = kReasonInterrupted;
    made.message = fmt::format("{} ended with exit code 0 after {}, and did not report that it is complete", who,
                               signal_name(result.interrupted_by));
  } else if (result.interrupted_by != 0 && (code == 128 + result.interrupted_by || code == 128 + SIGKILL)) {
    made.reason = kReasonInterrupted;
    made.message =
        fmt::format("{} ended with {} after {}", who, describe(result.status), signal_name(result.interrupted_by));
  }
  if (is_complete) {
    made.reason = kReasonCompleted;
    made.message = fmt::format("{} ended with exit code 0", who);
  }
  if (!result.disconnected.empty()) {
    made.reason = kReasonDisconnected;
    made.message = result.disconnected;
  }
  for (const std::string& text : texts) {
    if (const auto other = termination_message_from_json(text)) {
      made.step = std::max(made.step, other->step);
      made.checkpoint_step = std::max(made.checkpoint_step, other->checkpoint_step);
    }
  }
  return to_json(made);
}

std::optional<std::string> termination_log(const Environment& environment) {
  if (std::string path = value_of(environment, kEnvTerminationLog); !path.empty()) return path;
  if (::access(kDefaultTerminationLog, W_OK) == 0) return kDefaultTerminationLog;
  return std::nullopt;
}

Result<MessageFiles> MessageFiles::make(const Environment& environment) {
  std::vector<std::string> places = {"/tmp", "/dev/shm"};
  if (std::string place = value_of(environment, "TMPDIR"); !place.empty())
    places.insert(places.begin(), std::move(place));
  // The volume with the launcher of a pod whose root is read-only.
  std::error_code ignored;
  if (const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored); !program.empty())
    places.push_back(program.parent_path().string());
  for (const std::string& place : places) {
    if (Result<ScratchDirectory> directory = ScratchDirectory::create(place, "oarlock-launch."))
      return MessageFiles(*std::move(directory));
  }
  return fail(ExitCode::kCantCreate,
              fmt::format("no temporary directory can be created in {}; mount an emptyDir there, or set TMPDIR",
                          fmt::join(places, ", ")));
}

std::filesystem::path MessageFiles::path(int member) const {
  return directory_.path() / fmt::format("{}.json", member);
}

std::string MessageFiles::text(int member) const {
  return read_beginning(path(member), kErrorFileBytes + 1).value_or("");
}

std::string message_in(const std::filesystem::path& path) {
  return read_beginning(path, kTerminationMessageLimit).value_or("");
}

void remove_messages(const std::vector<std::filesystem::path>& files, const std::filesystem::path& pod_message) {
  std::error_code ignored;
  for (const std::filesystem::path& file : files) std::filesystem::remove(file, ignored);
  if (std::filesystem::exists(pod_message, ignored)) static_cast<void>(write_message(pod_message, ""));
}

Result<void> write_message(const std::filesystem::path& path, const std::string& text) {
  return write_in_place(path, text).map_error([](Error error) {
    error.message += " (the termination message)";
    return error;
  });
}

}  // namespace oarlock::launch
