#include "operator/core/rejection.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>
#include <vector>

#include "common/json_access.h"
#include "operator/core/desired.h"
#include "operator/core/text.h"

namespace oarlock::control {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxMessage = 2000;  // bytes that are searched for paths

// One step of a path: a member, or an item of a list.
struct Step {
  std::string text;             // as in the path, without a leading dot
  std::string key;              // of a member
  std::optional<size_t> index;  // of an item
};

std::vector<Step> split(std::string_view path) {
  std::vector<Step> steps;
  while (!path.empty()) {
    Step step;
    if (path.front() == '[') {
      const size_t end = std::min(path.find(']'), path.size());
      size_t index = 0;
      const auto [last, error] = std::from_chars(path.data() + 1, path.data() + end, index);
      step.key = path.substr(1, end - 1);
      if (error == std::errc() && last == path.data() + end) step.index = index;
      step.text = path.substr(0, end + 1);
      path.remove_prefix(std::min(end + 1, path.size()));
    } else {
      if (path.front() == '.') path.remove_prefix(1);
      const size_t end = std::min(path.find_first_of(".["), path.size());
      step.key = step.text = path.substr(0, end);
      path.remove_prefix(end);
    }
    steps.push_back(std::move(step));
  }
  return steps;
}

const Json* step_into(const Json& value, const Step& step) {
  if (value.is_array()) return step.index && *step.index < value.size() ? &value[*step.index] : nullptr;
  const Json& found = member(value, step.key.c_str());
  return found.is_null() ? nullptr : &found;
}

// Returns the field of the job from which the operator made a part of the pod; empty for other parts.
std::string source_of(const std::string& path) {
  static const std::regex kResources(R"re(spec\.containers\[\d+\]\.resources(\b.*))re");
  static const std::regex kImage(R"re(spec\.containers\[\d+\]\.image)re");
  static const std::regex kClaim(R"re(spec\.volumes\[\d+\]\.persistentVolumeClaim\.claimName)re");
  std::smatch match;
  if (std::regex_match(path, match, kResources)) return "spec.resourcesPerNode" + match[1].str();
  if (std::regex_match(path, kImage)) return "spec.image";
  return std::regex_match(path, kClaim) ? "spec.checkpoints.claimName" : "";
}

// Converts a path in the pod to one in the job. Containers and volumes of the template have the same index in the pod;
// the contract's variables precede those of the template.
std::string path_in_job(std::string_view path, const Json& pod, const Json& given) {
  const Json* in_pod = &pod;
  const Json* in_template = &given;
  std::string out = "spec.template";
  const std::vector<Step> steps = split(path);
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step = steps[i];
    in_pod = in_pod == nullptr ? nullptr : step_into(*in_pod, step);
    if (i > 0 && steps[i - 1].key == "env" && in_pod != nullptr && in_template->is_array()) {
      step.index = static_cast<size_t>(std::ranges::find(*in_template, *in_pod) - in_template->begin());
      step.text = fmt::format("[{}]", *step.index);
    }
    out += step.text.starts_with('[') ? step.text : "." + step.text;
    if (i + 1 == steps.size()) break;
    in_template = step_into(*in_template, step);
    if (in_template == nullptr) {  // a part that the operator added
      std::string source = source_of(std::string(path));
      return source.empty() ? fmt::format("the pod's {}", path) : source;
    }
  }
  return out;
}

// Replaces each match of `form`, whose first group is a path, by `format` with the path in the job.
std::string replace_paths(const std::string& text, const std::regex& form, const char* format, const Json& pod,
                          const Json& given) {
  std::string out;
  auto rest = text.cbegin();
  for (std::sregex_iterator it(text.begin(), text.end(), form); it != std::sregex_iterator(); ++it) {
    out.append(rest, (*it)[0].first);
    out += fmt::format(fmt::runtime(format), path_in_job((*it)[1].str(), pod, given));
    rest = (*it)[0].second;
  }
  out.append(rest, text.cend());
  return out;
}

}  // namespace

std::optional<std::string> explain_invalid_pod(const Job& job, int status, const std::string& message) {
  static const std::regex kUnreadable(
      R"re(^Pod in version "v1" cannot be handled as a Pod: (strict decoding error: )?)re");
  static const std::regex kInvalid(R"re(^Pod "[^"]*" is invalid: )re");
  static const std::regex kUnknown(R"re(unknown field "((?:[^"\\]|\\.)+)")re");
  static const std::regex kField(R"re(\b((?:spec|metadata)\.[A-Za-z0-9_.\[\]/-]+))re");
  const std::string text = message.substr(0, kMaxMessage);
  std::smatch match;
  const bool is_unreadable = status == 400 && std::regex_search(text, match, kUnreadable);
  if (!is_unreadable && !(status == 422 && std::regex_search(text, match, kInvalid))) return std::nullopt;
  const Json pod = PodFactory(job, job.status.attempt, {}, PodFactory::kPlaceholderToken).pod(0);
  Json given = Json::parse(job.spec.pod_template.empty() ? "{}" : job.spec.pod_template, nullptr, false);
  const std::string problem = match.suffix();
  return sanitize_line(is_unreadable ? replace_paths(problem, kUnknown, "{}: unknown field", pod, given)
                                     : replace_paths(problem, kField, "{}", pod, given));
}

}  // namespace oarlock::control
