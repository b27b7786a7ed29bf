#include "operator/core/rejection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <regex>
#include <string_view>
#include <vector>

#include "api/resources.h"
#include "common/json_access.h"
#include "common/text.h"
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

bool begins_with_launcher(const Json& pod) {
  const Json& list = elements(member(pod, "spec"), "initContainers");
  return !list.empty() && text_at(list.front(), "name") == kLauncherName;
}

// Converts a path in the pod to one in the job. Containers and volumes of the template have the same index in the pod;
// the contract's variables precede those of the template, and the launcher's init container the others.
std::string path_in_job(std::string_view path, const Json& pod, const Json& given) {
  const Json* in_pod = &pod;
  const Json* in_template = &given;
  std::string out = "spec.template";
  const std::vector<Step> steps = split(path);
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step = steps[i];
    in_pod = in_pod == nullptr ? nullptr : step_into(*in_pod, step);
    if (i > 0 && steps[i - 1].key == "initContainers" && step.index && begins_with_launcher(pod) &&
        !begins_with_launcher(given)) {
      if (*step.index == 0) return fmt::format("the pod's {}", path);
      step.text = fmt::format("[{}]", --*step.index);
    }
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

// ---- Values of a wrong type: the API server names a type of Go, and the field without the indices ----------------

// A value of a wrong type in the template.
struct WrongType {
  std::string kind;                // JSON type as Go names it
  std::vector<std::string> field;  // members from the root; items of lists have no name
};

bool has_kind(const Json& value, std::string_view kind) {
  if (kind == "bool") return value.is_boolean();
  return kind == value.type_name();
}

// Returns the path of the first value of the wrong type, and the field without indices if there is none.
std::optional<std::string> find_wrong_type(const Json& value, const WrongType& wrong, size_t depth,
                                           const std::string& path) {
  const bool is_end = depth == wrong.field.size();
  if (is_end && has_kind(value, wrong.kind)) return path;
  if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) {
      auto found = find_wrong_type(value[i], wrong, depth, fmt::format("{}[{}]", path, i));
      if (found) return found;
    }
  } else if (value.is_object() && is_end) {  // a map whose values have one type, such as nodeSelector
    for (const auto& [key, item] : value.items()) {
      if (has_kind(item, wrong.kind)) return fmt::format("{}.{}", path, key);
    }
  } else if (value.is_object()) {
    const auto next = value.find(wrong.field[depth]);
    if (next != value.end())
      return find_wrong_type(*next, wrong, depth + 1, fmt::format("{}.{}", path, wrong.field[depth]));
  }
  return std::nullopt;
}

std::string expected_type(std::string_view go_type) {
  if (go_type == "string") return "a string; put it in quotes";
  if (go_type == "bool") return "true or false";
  if (go_type.starts_with("int")) return "an integer";
  return go_type.starts_with("[]") ? "a list" : "a map";
}

std::string kind_text(const std::string& kind) {
  if (kind == "object") return "a map";
  if (kind == "bool") return "true or false";
  return kind == "array" ? "a list" : "a " + kind;
}

// Returns the message with the path of the value, or nothing if it is not about a value of a wrong type.
std::optional<std::string> explain_wrong_type(const std::string& problem, const Json& given) {
  static const std::regex kForm(
      R"re(^json: cannot unmarshal (\w+)(?: \S+)? into Go struct field \w+\.([A-Za-z0-9_.]+) of type (\S+))re");
  std::smatch match;
  if (!std::regex_search(problem, match, kForm)) return std::nullopt;
  WrongType wrong{.kind = match[1], .field = {}};
  for (const Step& step : split(match[2].str())) {
    const bool is_embedded =
        step.key.front() >= 'A' && step.key.front() <= 'Z';  // a struct of Go, such as ProbeHandler
    if (!is_embedded) wrong.field.push_back(step.key);
  }
  const std::string path = find_wrong_type(given, wrong, 0, "spec.template")
                               .value_or(fmt::format("spec.template.{}", fmt::join(wrong.field, ".")));
  return fmt::format("{}: expected {}, got {}", path, expected_type(match[3].str()), kind_text(wrong.kind));
}

// Explains the first invalid quantity in the template.
std::optional<std::string> explain_invalid_quantity(const Json& given) {
  const auto pod_spec = given.find("spec");
  if (pod_spec == given.end()) return std::nullopt;
  std::optional<std::string> found;
  api::visit_quantities(
      *pod_spec, {.key = "spec.template.spec"},
      [&found](const FieldPath& path, std::string_view, const Json& quantity) {
        if (!found && !quantity.is_structured() && !quantity.is_null() && !api::is_quantity(quantity)) {
          found = fmt::format("{}: {} is not a quantity, {}", path.text(), shortened(quantity.dump()),
                              api::similar_quantities(quantity));
        }
      });
  return found;
}

// Explains the messages of the API server's decoder that contain no path of the template.
std::optional<std::string> explain_unreadable_value(const std::string& problem, const Json& given) {
  if (!problem.starts_with("quantities must match the regular expression")) return explain_wrong_type(problem, given);
  return explain_invalid_quantity(given);
}

// ---- What admission has added --------------------------------------------------------------------------------------

// Returns the value at a path in the pod, without its last `omitted` steps; null if there is none.
const Json* find_in_pod(const Json& pod, const std::string& path, size_t omitted) {
  const std::vector<Step> steps = split(path);
  const Json* value = &pod;
  for (size_t i = 0; i + omitted < steps.size() && value != nullptr; ++i) value = step_into(*value, steps[i]);
  return value;
}

// Whether the message is about a field or a limit that the pod does not have as the operator sends it. An admission
// plugin, such as a LimitRange or a mutating webhook, has added it.
bool is_about_admission(const std::string& problem, const Json& pod) {
  static const std::regex kProblem(R"re(\b((?:spec|metadata)\.[A-Za-z0-9_.\[\]/-]+): (Required value)?)re");
  static const std::regex kLimit(
      R"re(((?:spec)\.[A-Za-z0-9_.\[\]]+)\.resources\.requests: [^,]*equal to ([A-Za-z0-9./-]+) limit)re");
  for (std::sregex_iterator it(problem.begin(), problem.end(), kProblem); it != std::sregex_iterator(); ++it) {
    if (find_in_pod(pod, (*it)[1].str(), (*it)[2].matched ? 1 : 0) == nullptr) return true;
  }
  for (std::sregex_iterator it(problem.begin(), problem.end(), kLimit); it != std::sregex_iterator(); ++it) {
    const Json* limits = find_in_pod(pod, (*it)[1].str() + ".resources.limits", 0);
    if (limits == nullptr || !limits->contains((*it)[2].str())) return true;
  }
  return false;
}

// Admission webhooks and policies may deny a pod with any status code.
bool is_denial(const std::string& message) {
  return message.starts_with("admission webhook") || message.find(" denied the request") != std::string::npos;
}

}  // namespace

std::optional<std::string> explain_invalid_pod(const Job& job, int status, const std::string& message) {
  static const std::regex kUnreadable(
      R"re(^Pod in version "v1" cannot be handled as a Pod: (strict decoding error: )?)re");
  static const std::regex kInvalid(R"re(^Pod "[^"]*" is invalid: )re");
  static const std::regex kUnknown(R"re(unknown field "((?:[^"\\]|\\.)+)")re");
  static const std::regex kField(R"re(\b((?:spec|metadata)\.[A-Za-z0-9_.\[\]/-]+))re");
  if (is_denial(message.substr(0, kMaxMessage))) return std::nullopt;
  if (status == 413)
    return "spec.template: the API server does not accept pods of this size; move large parts into a ConfigMap, a "
           "volume or the image";
  const std::string text = message.substr(0, kMaxMessage);
  std::smatch match;
  const bool is_unreadable = status == 400 && std::regex_search(text, match, kUnreadable);
  if (!is_unreadable && !(status == 422 && std::regex_search(text, match, kInvalid))) return std::nullopt;
  const Json pod = PodFactory(job, job.status.attempt, {}, placeholder_secret()).pod(0);
  Json given = Json::parse(job.spec.pod_template.empty() ? "{}" : job.spec.pod_template, nullptr, false);
  const std::string problem = match.suffix();
  if (!is_unreadable && is_about_admission(problem, pod)) return std::nullopt;
  if (is_unreadable) {
    if (const auto explained = explain_unreadable_value(problem, given)) return sanitize_line(*explained);
  }
  return sanitize_line(is_unreadable ? replace_paths(problem, kUnknown, "{}: unknown field", pod, given)
                                     : replace_paths(problem, kField, "{}", pod, given));
}

}  // namespace oarlock::control
