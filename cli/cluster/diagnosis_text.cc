#include "cli/cluster/diagnosis.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstring>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "cli/cluster/cause_text.h"
#include "common/text.h"

namespace oarlock::cli {
namespace {

std::string signal_text(int number) {
  const char* name = ::sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("signal {} (SIG{})", number, name);
}

}  // namespace

std::string exit_code_text(int code) {
  constexpr std::pair<int, std::string_view> kMeanings[] = {
      {0, "success"},
      {1, "a failure that no other code describes"},
      {64, "the command line is wrong"},
      {65, "an input file is damaged or has the wrong content, or the loss is not finite"},
      {66, "an input file or a command does not exist or cannot be read"},
      {68, "a host name does not exist"},
      {69, "a required service, device or program is not available"},
      {70, "a bug in the program or in a kernel"},
      {71, "a system call failed: no process, no memory, or /dev/shm is too small"},
      {72, "a checkpoint exists that the run can neither read nor may replace"},
      {73, "an output file or directory cannot be created"},
      {74, "reading or writing failed"},
      {75, "interrupted after saving a checkpoint, or a condition that a retry may resolve"},
      {76, "another rank was lost"},
      {77, "permission denied"},
      {78, "the configuration or the environment is wrong"},
      {79, "the GPU, its link or its driver failed, or the node its preflight"},
      {126, "the command of the container may not be executed"},
      {127, "the command of the container does not exist"},
  };
  for (const auto& [known, meaning] : kMeanings) {
    if (known == code) return fmt::format("{}: {}", code, meaning);
  }
  if (code > 128 && code < 128 + 65) return fmt::format("{}: ended by {}", code, signal_text(code - 128));
  return fmt::format("{}: defined by the command of the container", code);
}

// ---- The output of `oarlock why` ---------------------------------------------------------------------------------

std::string diagnosis_text(const Diagnosis& found, const Style& style, SystemTime now) {
  std::string out = style.paint(Color::kBold, printable(found.headline)) + "\n";
  const auto add = [&](std::string_view label, const std::string& text) {
    if (!text.empty()) out += fmt::format("  {:<9} {}\n", label, printable(text));
  };
  const auto add_all = [&](std::string_view label, const std::vector<std::string>& lines) {
    for (size_t i = 0; i < lines.size(); ++i) add(i == 0 ? label : "", lines[i]);
  };
  if (found.cause != DiagnosedCause::kNone) add("cause", std::string(to_string(found.cause)));
  std::vector<std::string> place;
  if (found.rank) place.push_back(fmt::format("rank {}", *found.rank));
  if (!found.pod.empty()) place.push_back("pod " + found.pod);
  if (!found.node.empty()) place.push_back("node " + found.node);
  if (found.node_rank && !found.rank) place.push_back(fmt::format("node rank {}", *found.node_rank));
  if (found.attempt && found.cause != DiagnosedCause::kNone) place.push_back(fmt::format("attempt {}", *found.attempt));
  add("where", fmt::format("{}", fmt::join(place, ", ")));
  if (found.time) add("when", fmt::format("{} ({} ago)", to_rfc3339(*found.time), age_text(found.time, now)));
  if (!found.explanation.empty()) add("exit code", found.explanation);
  add("message", found.message);
  add_all("evidence", found.evidence);
  add_all("cost", found.cost);
  add_all("before", found.history);
  add_all("try", found.remedies);
  return out;
}

nlohmann::json diagnosis_document(const std::string& job, const Diagnosis& found) {
  nlohmann::json out = {{"job", job},
                        {"cause", std::string(to_string(found.cause))},
                        {"headline", found.headline},
                        {"resolved", found.is_resolved},
                        {"evidence", found.evidence},
                        {"cost", found.cost},
                        {"history", found.history},
                        {"remedies", found.remedies}};
  const auto set_text = [&](const char* key, const std::string& text) {
    if (!text.empty()) out[key] = text;
  };
  set_text("pod", found.pod);
  set_text("node", found.node);
  set_text("explanation", found.explanation);
  set_text("message", found.message);
  if (found.node_rank) out["nodeRank"] = *found.node_rank;
  if (found.rank) out["rank"] = *found.rank;
  if (found.attempt) out["attempt"] = *found.attempt;
  if (found.exit_code) out["exitCode"] = *found.exit_code;
  if (found.time) out["time"] = to_rfc3339(*found.time);
  return out;
}

}  // namespace oarlock::cli
