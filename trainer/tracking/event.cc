#include "trainer/tracking/event.h"

#include <array>
#include <chrono>
#include <cstdint>
#include <type_traits>

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

// Accepts what encode_event() can write. A value of CBOR may take a hundred times its size in memory, and is read by
// recursive functions.
class SizeCheck final : public Json::json_sax_t {
 public:
  bool null() override { return add_value(); }
  bool boolean(bool) override { return add_value(); }
  bool number_integer(number_integer_t) override { return add_value(); }
  bool number_unsigned(number_unsigned_t) override { return add_value(); }
  bool number_float(number_float_t, const string_t&) override { return add_value(); }
  bool string(string_t&) override { return add_value(); }
  bool binary(binary_t&) override { return add_value(); }
  bool start_array(size_t) override { return open(); }
  bool end_array() override { return close(); }
  bool start_object(size_t) override { return open(); }
  bool end_object() override { return close(); }
  bool key(string_t&) override { return true; }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override { return false; }

 private:
  static constexpr int kMaxDepth = 256;  // a configuration has fewer levels (yaml::limits::kDepth)
  static constexpr int kMaxValues = 1 << 20;

  bool add_value() { return ++values_ <= kMaxValues; }
  bool open() { return ++depth_ <= kMaxDepth && add_value(); }
  bool close() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  int values_ = 0;
};

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
    SizeCheck check;
    if (!Json::sax_parse(bytes, &check, Json::input_format_t::cbor)) return std::nullopt;
    const Json json = Json::from_cbor(bytes);
    Event out;
    out.time = SystemTime(std::chrono::microseconds(json.at("time").get<int64_t>()));
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
