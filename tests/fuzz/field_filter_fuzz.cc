// Any JSON text through a field filter. Whatever a plain JSON parser accepts, the filter must accept as well, with the
// same values: an object that the API server stores must never be unreadable.
#include <nlohmann/json.hpp>

#include "common/text.h"
#include "kube/client/field_filter.h"
#include "tests/fuzz/input.h"

using namespace oarlock;
using Json = nlohmann::json;

namespace {

constexpr std::array<std::string_view, 3> kTrees = {"a", "metadata", "spec"};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const kube::FieldFilter filter = kube::FieldFilter{"a", "metadata", "spec", "text"}.with_text({"text"});
  const std::string_view text = fuzz::text_of(data, size);
  const Result<Json> kept = filter.parse(text);
  static kube::FieldFilter::Buffers buffers;
  const Result<Json> again = filter.parse(text, buffers);
  fuzz::require(kept.has_value() == again.has_value() && (!kept || *kept == *again));

  // RFC 8259 forbids both; nlohmann::json skips a byte order mark and reads NUL as the end of the text.
  if (text.starts_with("\xEF\xBB\xBF") || text.find('\0') != std::string_view::npos) return 0;
  const Json plain = Json::parse(text, nullptr, false);
  if (plain.is_discarded() || !plain.is_object()) return 0;
  if (json_depth(text) >= kube::FieldFilter::kMaxDepth) return 0;
  fuzz::require(kept.has_value());
  for (const std::string_view key : kTrees) {
    fuzz::require(kept->contains(key) == plain.contains(key));
    if (plain.contains(key)) fuzz::require((*kept)[key] == plain[key]);
  }
  if (kept->contains("text") && (*kept)["text"].is_binary()) {
    const auto& bytes = (*kept)["text"].get_binary();
    fuzz::require(Json::parse(bytes.begin(), bytes.end(), nullptr, false) == plain["text"]);
  }
  return 0;
}
