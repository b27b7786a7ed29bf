#include "trainer/tracking/event.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "trainer/tracking/encoding.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

// The names of the alternatives of Event::content, in their order.
constexpr std::array<const char*, 6> kContentNames = {"started", "scalars", "histogram", "text", "image", "finished"};
static_assert(kContentNames.size() == std::variant_size_v<decltype(Event::content)>);

Json binary(const std::string& bytes) { return Json::binary({bytes.begin(), bytes.end()}); }

std::string bytes_of(const Json& value) {
  const Json::binary_t& binary = value.get_binary();
  return {binary.begin(), binary.end()};
}

// Calls visit(key, member) for each member.
template <typename Visit>
void each_member(auto& run, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(run)>>, RunStarted>
{
  visit("name", run.name);
  visit("task", run.task);
  visit("job", run.job);
  visit("job_namespace", run.job_namespace);
  visit("uid", run.uid);
  visit("place", run.place);
  visit("attempt", run.attempt);
  visit("restart_step", run.restart_step);
  visit("loss", run.loss);
  visit("monitor", run.monitor);
  visit("config", run.config);
  visit("derived", run.derived);
  visit("versions", run.versions);
}

template <typename Visit>
void each_member(auto& scalars, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(scalars)>>, Scalars>
{
  visit("values", scalars.values);
}

template <typename Visit>
void each_member(auto& histogram, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(histogram)>>, Histogram>
{
  visit("name", histogram.name);
  visit("min", histogram.min);
  visit("max", histogram.max);
  visit("count", histogram.count);
  visit("sum", histogram.sum);
  visit("sum_squares", histogram.sum_squares);
  visit("limits", histogram.limits);
  visit("counts", histogram.counts);
}

template <typename Visit>
void each_member(auto& text, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(text)>>, Text>
{
  visit("name", text.name);
  visit("text", text.text);
}

template <typename Visit>
void each_member(auto& image, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(image)>>, Image>
{
  visit("name", image.name);
  visit("width", image.width);
  visit("height", image.height);
}

template <typename Visit>
void each_member(auto& finished, const Visit& visit)
  requires std::is_same_v<std::remove_const_t<std::remove_reference_t<decltype(finished)>>, RunFinished>
{
  visit("success", finished.success);
  visit("resumes", finished.resumes);
  visit("reason", finished.reason);
  visit("message", finished.message);
  visit("summary", finished.summary);
  visit("time_table", finished.time_table);
}

template <typename Content>
Json encode(const Content& content) {
  Json out;
  each_member(content, [&out](const char* key, const auto& member) { out[key] = member; });
  if constexpr (std::is_same_v<Content, Image>) out["png"] = binary(content.png);
  return out;
}

template <typename Content>
void decode(const Json& json, Content& content) {
  each_member(content, [&json](const char* key, auto& member) {
    if (const auto found = json.find(key); found != json.end()) found->get_to(member);
  });
  if constexpr (std::is_same_v<Content, Image>) content.png = bytes_of(json.at("png"));
}

// Emplaces the alternative with this index.
template <size_t Index = 0>
void emplace(Event& event, size_t index, const Json& json) {
  if constexpr (Index < std::variant_size_v<decltype(Event::content)>) {
    if (index != Index) return emplace<Index + 1>(event, index, json);
    decode(json, event.content.emplace<Index>());
  }
}

constexpr size_t kMaxDepth = 256;  // a configuration has fewer levels (yaml::limits::kDepth)
constexpr uint64_t kMaxValues = 1 << 20;

// Whether the bytes are one value of CBOR (RFC 8949) that encode_event() can have written: of known lengths, without
// tags, and within the limits. The library reads values, and parts of strings of unknown length, by recursive
// functions, and a value may take a hundred times its size in memory.
bool is_bounded_cbor(std::string_view bytes) {
  enum MajorType : uint8_t { kUnsigned, kNegative, kBytes, kText, kArray, kMap, kTag, kSimpleOrFloat };
  std::vector<uint64_t> left;  // the values that are left in each array and map which contains the next value
  size_t at = 0;
  for (uint64_t values = 1; values <= kMaxValues && at < bytes.size(); ++values) {
    const auto head = static_cast<uint8_t>(bytes[at++]);
    const int type = head >> 5;
    uint64_t argument = head & 0x1f;
    if (argument >= 24) {
      if (argument > 27) return false;  // reserved, or of unknown length
      const size_t length = size_t{1} << (argument - 24);
      if (bytes.size() - at < length) return false;
      argument = 0;
      for (size_t i = 0; i < length; ++i) argument = argument << 8 | static_cast<uint8_t>(bytes[at++]);
    }
    if (type == kTag) return false;
    if (type == kBytes || type == kText) {
      if (bytes.size() - at < argument) return false;
      at += argument;
    }
    if ((type == kArray || type == kMap) && argument > 0) {
      if (argument > kMaxValues || left.size() == kMaxDepth) return false;
      left.push_back(type == kMap ? 2 * argument : argument);
      continue;
    }
    while (!left.empty() && --left.back() == 0) left.pop_back();
    if (left.empty()) return at == bytes.size();
  }
  return false;
}

}  // namespace

std::string encode_event(const Event& event) {
  Json out;
  out["time"] = std::chrono::duration_cast<std::chrono::microseconds>(event.time.time_since_epoch()).count();
  out["step"] = event.step;
  out[kContentNames[event.content.index()]] =
      std::visit([](const auto& content) { return encode(content); }, event.content);
  std::string bytes;
  Json::to_cbor(out, bytes);
  return bytes;
}

std::optional<Event> decode_event(std::string_view bytes) {
  try {
    if (!is_bounded_cbor(bytes)) return std::nullopt;
    const Json json = Json::from_cbor(bytes);
    Event out;
    out.time = time_from_microseconds(json.at("time").get<int64_t>());
    out.step = json.at("step");
    for (size_t i = 0; i < kContentNames.size(); ++i) {
      const auto content = json.find(kContentNames[i]);
      if (content == json.end()) continue;
      emplace(out, i, *content);
      return out;
    }
  } catch (const Json::exception&) {  // not CBOR, or another type
  }
  return std::nullopt;
}

}  // namespace oarlock
