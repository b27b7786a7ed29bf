#include "trainer/tracking/mlflow_items.h"

#include <fmt/format.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <iterator>

#include "common/json_access.h"
#include "common/text.h"

namespace oarlock {
namespace {

constexpr size_t kMaxMlflowKey = 250;
constexpr char kMlflowKeyPunctuation[] = "_-. :/";
constexpr char kMlflowArtifactPunctuation[] = "_- /";

struct CodeRange {
  char32_t first;
  char32_t last;
};
// Ranges without combining marks and unassigned codes, which Python's \w does not match. The names of other scripts get
// the checksum.
constexpr CodeRange kLetters[] = {
    {'0', '9'},       {'A', 'Z'},       {'a', 'z'},       {0x00C0, 0x00D6}, {0x00D8, 0x00F6},
    {0x00F8, 0x02AF}, {0x0391, 0x03A1}, {0x03A3, 0x03CE}, {0x0400, 0x0481}, {0x048A, 0x0527},
    {0x05D0, 0x05EA}, {0x0620, 0x063F}, {0x0641, 0x064A}, {0x1E00, 0x1EFF}, {0x3041, 0x3096},
    {0x30A1, 0x30FA}, {0x30FC, 0x30FC}, {0x4E00, 0x9FA5}, {0xAC00, 0xD7A3},
};

bool is_mlflow_letter(char32_t code) {
  return std::any_of(std::begin(kLetters), std::end(kLetters),
                     [&](const CodeRange& range) { return range.first <= code && code <= range.last; });
}

// Returns the longest beginning of a UTF-8 text of at most `max_bytes` bytes that ends between two characters.
std::string_view mlflow_prefix(std::string_view text, size_t max_bytes) {
  if (text.size() <= max_bytes) return text;
  size_t end = max_bytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  return text.substr(0, end);
}

// Replaces each character that is neither a letter nor one of `punctuation` by '_'.
std::string replace_invalid_characters(std::string_view name, std::string_view punctuation) {
  std::string out;
  while (!name.empty()) {
    const Utf8Character character = first_utf8_character(name);
    const size_t length = std::max<size_t>(character.length, 1);
    const bool is_valid =
        character.length > 0 &&
        (is_mlflow_letter(character.code) || (length == 1 && punctuation.find(name[0]) != std::string_view::npos));
    if (is_valid) {
      out += name.substr(0, length);
    } else {
      out += '_';
    }
    name.remove_prefix(length);
  }
  return out;
}

// Removes empty components, and replaces the dots of components that begin with ".." or are ".".
std::string shortest_relative_path(std::string_view path) {
  std::string out;
  while (!path.empty()) {
    const size_t end = std::min(path.find('/'), path.size());
    std::string component(path.substr(0, end));
    path.remove_prefix(std::min(end + 1, path.size()));
    if (component.empty()) continue;
    if (component == "." || component.starts_with("..")) std::replace(component.begin(), component.end(), '.', '_');
    if (!out.empty()) out += '/';
    out += component;
  }
  return out.empty() ? "_" : out;
}

std::string valid_mlflow_name(std::string_view name, std::string_view punctuation) {
  const std::string valid = shortest_relative_path(replace_invalid_characters(name, punctuation));
  if (valid == name && valid.size() <= kMaxMlflowKey) return valid;
  const uLong checksum = crc32_z(0, reinterpret_cast<const Bytef*>(name.data()), name.size());
  const std::string end = fmt::format("-{:08x}", checksum);
  return std::string(mlflow_prefix(valid, kMaxMlflowKey - end.size())) + end;
}

constexpr size_t kMaxMlflowParamValue = 6000;
constexpr size_t kMaxMlflowTagValue = 5000;

// Protocol buffers' JSON has texts for the numbers that JSON lacks.
std::string mlflow_number(double value) {
  if (std::isnan(value)) return R"("NaN")";
  if (std::isinf(value)) return value > 0 ? R"("Infinity")" : R"("-Infinity")";
  return fmt::format("{}", value);
}

}  // namespace

std::string mlflow_key(std::string_view name) { return valid_mlflow_name(name, kMlflowKeyPunctuation); }

std::string mlflow_artifact_path(std::string_view directory, std::string_view name, int64_t step,
                                 std::string_view extension) {
  return fmt::format("{}/{}/{:08}.{}", directory, valid_mlflow_name(name, kMlflowArtifactPunctuation), step, extension);
}

std::string mlflow_text(std::string_view value, size_t max_bytes) {
  constexpr std::string_view kEllipsis = "...";
  std::string out = printable(value);
  if (out.size() <= max_bytes) return out;
  out.resize(mlflow_prefix(out, max_bytes - kEllipsis.size()).size());
  return out += kEllipsis;
}

MlflowMetric make_mlflow_metric(const std::string& name) {
  MlflowMetric out{.key = mlflow_key(name), .text_head = ""};
  out.text_head = fmt::format(R"({{"key":{},"value":)", dump_json(out.key));
  return out;
}

std::string metric_text_end(const Event& event) {
  return fmt::format(R"(,"timestamp":{},"step":{}}})", mlflow_milliseconds(event.time), event.step);
}

MlflowItem metric_item(const MlflowMetric& metric, double value, const std::string& text_end, int64_t step) {
  return {.key = metric.key, .text = metric.text_head + mlflow_number(value) + text_end, .step = step};
}

MlflowItem param_item(const std::string& key, const std::string& value) {
  return {.key = key, .text = dump_json({{"key", key}, {"value", value}})};
}

nlohmann::json mlflow_tag(const std::string& key, const std::string& value) {
  return {{"key", key}, {"value", mlflow_text(value, kMaxMlflowTagValue)}};
}

MlflowItem tag_item(const std::string& key, const std::string& value) {
  return {.key = key, .text = dump_json(mlflow_tag(key, value))};
}

void flatten_params(const nlohmann::json& value, const std::string& path, std::map<std::string, std::string>& out) {
  if (value.is_object()) {
    for (const auto& [key, member] : value.items()) flatten_params(member, path.empty() ? key : path + "." + key, out);
  } else if (!value.is_null() && !path.empty()) {
    const std::string text = value.is_string() ? value.get<std::string>() : dump_json(value);
    out.emplace(mlflow_key(path), mlflow_text(text, kMaxMlflowParamValue));
  }
}

// MLflow rejects times before 1970, which a clock that is not set may have.
int64_t mlflow_milliseconds(SystemTime time) {
  return std::max<int64_t>(0, std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count());
}

std::optional<std::string> mlflow_proxied_path(std::string_view uri) {
  constexpr size_t kMaxBytes = 4096;
  constexpr std::string_view kScheme = "mlflow-artifacts:";
  if (!uri.starts_with(kScheme) || uri.size() > kMaxBytes) return std::nullopt;
  uri.remove_prefix(kScheme.size());
  if (uri.starts_with("//")) uri = uri.substr(std::min(uri.find('/', 2), uri.size()));
  while (uri.starts_with('/')) uri.remove_prefix(1);
  return std::string(uri);
}

}  // namespace oarlock
