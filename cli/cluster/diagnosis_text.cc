#include "cli/cluster/diagnosis_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "common/text.h"

namespace oarlock::cli {

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
