#include "kube/client/field_filter.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <charconv>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;
using Node = FieldFilter::Node;
using simdjson::ondemand::json_type;
using simdjson::ondemand::number_type;

constexpr size_t kMaxReusedBytes = 256u << 10;

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// simdjson's tokens and slices extend to the next token.
std::string_view without_trailing_space(std::string_view text) {
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// number = [ "-" ] int [ frac ] [ exp ] of RFC 8259.
bool is_number(std::string_view token) {
  size_t i = 0;
  const auto digits = [&] {
    const size_t begin = i;
    while (i < token.size() && token[i] >= '0' && token[i] <= '9') ++i;
    return i - begin;
  };
  const auto next_is = [&](std::string_view any) {
    return i < token.size() && any.find(token[i]) != std::string_view::npos;
  };
  if (next_is("-")) ++i;
  const bool has_leading_zero = next_is("0");
  const size_t integer = digits();
  if (integer == 0 || (has_leading_zero && integer > 1)) return false;
  if (next_is(".")) {
    ++i;
    if (digits() == 0) return false;
  }
  if (next_is("eE")) {
    ++i;
    if (next_is("+-")) ++i;
    if (digits() == 0) return false;
  }
  return i == token.size();
}

// Converts a number that is not a 64-bit integer to the nearest double.
Json double_number(std::string_view token) {
  if (!is_number(token)) throw simdjson::simdjson_error(simdjson::NUMBER_ERROR);
  double value = 0;
  const auto end = std::from_chars(token.data(), token.data() + token.size(), value);
  if (end.ec != std::errc::result_out_of_range) return value;
  // The number is too small if its exponent is negative, otherwise too large; from_chars sets no value in either case.
  const size_t exponent = token.find_first_of("eE");
  const bool is_tiny = exponent != std::string_view::npos && token.substr(exponent + 1).starts_with('-');
  const double magnitude = is_tiny ? 0 : std::numeric_limits<double>::max();
  return token.starts_with('-') ? -magnitude : magnitude;
}

// simdjson rejects integers beyond 64 bits and numbers that no double can hold, and its version 3.0 reads a fraction
// with more than 19 digits as 0: it reads the integers only.
Json number_of(simdjson::ondemand::value value) {
  const std::string_view token = without_trailing_space(value.raw_json_token());
  simdjson::ondemand::number number;
  if (value.get_number().get(number) != simdjson::SUCCESS) return double_number(token);
  switch (number.get_number_type()) {
    case number_type::signed_integer:
      return number.get_int64();
    case number_type::unsigned_integer:
      return number.get_uint64();
    default:
      return double_number(token);
  }
}

void append_utf8(uint32_t code_point, std::string& out) {
  if (code_point < 0x80) {
    out += static_cast<char>(code_point);
  } else if (code_point < 0x800) {
    out += static_cast<char>(0xC0 | (code_point >> 6));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    out += static_cast<char>(0xE0 | (code_point >> 12));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  } else {
    out += static_cast<char>(0xF0 | (code_point >> 18));
    out += static_cast<char>(0x80 | ((code_point >> 12) & 0x3F));
    out += static_cast<char>(0x80 | ((code_point >> 6) & 0x3F));
    out += static_cast<char>(0x80 | (code_point & 0x3F));
  }
}

// Returns the UTF-16 code unit of "\uXXXX" at the beginning of the text; nullopt for any other text.
std::optional<uint32_t> code_unit_of(std::string_view text) {
  if (text.size() < 6 || !text.starts_with("\\u")) return std::nullopt;
  uint32_t unit = 0;
  const auto end = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
  if (end.ec != std::errc() || end.ptr != text.data() + 6) return std::nullopt;
  return unit;
}

// Unescapes a string with an unpaired surrogate, which simdjson rejects: each becomes U+FFFD, as in Go's decoder.
// `raw` begins after the opening quote and has a closing one.
std::string lenient_string(const char* raw) {
  constexpr uint32_t kReplacement = 0xFFFD;
  constexpr std::string_view kEscapes = "\"\\/bfnrt";
  constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";
  std::string out;
  while (*raw != '"') {
    if (*raw != '\\') {
      out += *raw++;
      continue;
    }
    if (const size_t simple = kEscapes.find(raw[1]); simple != std::string_view::npos) {
      out += kEscaped[simple];
      raw += 2;
      continue;
    }
    const std::optional<uint32_t> unit = code_unit_of(std::string_view(raw, strnlen(raw, 6)));
    if (!unit) throw simdjson::simdjson_error(simdjson::STRING_ERROR);
    raw += 6;
    const bool is_high = *unit >= 0xD800 && *unit < 0xDC00;
    const std::optional<uint32_t> low = is_high ? code_unit_of(std::string_view(raw, strnlen(raw, 6))) : std::nullopt;
    if (low && *low >= 0xDC00 && *low < 0xE000) {
      append_utf8(0x10000 + ((*unit - 0xD800) << 10) + (*low - 0xDC00), out);
      raw += 6;
    } else {
      append_utf8(*unit >= 0xD800 && *unit < 0xE000 ? kReplacement : *unit, out);
    }
  }
  return out;
}

std::string string_of(simdjson::ondemand::value value) {
  const char* raw = std::string_view(value.raw_json_token()).data() + 1;
  std::string_view text;
  if (value.get_string().get(text) == simdjson::SUCCESS) return std::string(text);
  return lenient_string(raw);
}

// Returns the key as a view; it refers to `buffer` if simdjson cannot unescape the key.
std::string_view key_of(simdjson::ondemand::field& field, std::string& buffer) {
  const char* raw = field.key().raw();
  std::string_view text;
  if (field.unescaped_key().get(text) == simdjson::SUCCESS) return text;
  return buffer = lenient_string(raw);
}

Json text_value(simdjson::ondemand::object object) {
  const std::string_view text = without_trailing_space(object.raw_json());
  return Json::binary({text.begin(), text.end()});
}

// Returns the selected part of a value; the parser skips the rest. `node` is the filter's node for the value. It is
// null if the filter has no paths below this value, in which case `select_all` is true. `room` is the number of values
// that the result may have besides this one. Throws simdjson_error.
Json filter_value(simdjson::ondemand::value value, const Node* node, bool select_all, int depth, size_t& room) {
  if (room-- == 0) throw simdjson::simdjson_error(simdjson::CAPACITY);
  if (depth > FieldFilter::kMaxDepth) throw simdjson::simdjson_error(simdjson::DEPTH_ERROR);
  select_all = select_all || node->selects_all;
  switch (value.type()) {
    case json_type::object: {
      if (node != nullptr && node->is_text) return text_value(value.get_object());
      Json out = Json::object();
      std::string buffer;
      for (simdjson::ondemand::field field : value.get_object()) {
        const std::string_view name = key_of(field, buffer);
        const Node* child = nullptr;
        if (node != nullptr) {
          const auto found = node->members.find(name);
          if (found != node->members.end()) child = &found->second;
        }
        if (!select_all && child == nullptr) continue;
        std::string key(name);
        out[std::move(key)] = filter_value(field.value(), child, select_all, depth + 1, room);
      }
      return out;
    }
    case json_type::array: {
      Json out = Json::array();
      for (auto element : value.get_array())
        out.push_back(filter_value(element.value(), node, select_all, depth + 1, room));
      return out;
    }
    case json_type::string:
      return string_of(value);
    case json_type::number:
      return number_of(value);
    case json_type::boolean:
      return bool(value.get_bool());
    default:
      if (!value.is_null()) throw simdjson::simdjson_error(simdjson::N_ATOM_ERROR);
      return nullptr;
  }
}

Node& node_at(Node& node, std::string_view path) {
  std::string key;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 1 < path.size()) {
      key += path[++i];
    } else if (path[i] == '.') {
      return node_at(node.members[key], path.substr(i + 1));
    } else {
      key += path[i];
    }
  }
  return node.members[key];
}

}  // namespace

FieldFilter::FieldFilter(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) add(path);
}

void FieldFilter::add(std::string_view path) { node_at(root_, path).selects_all = true; }

FieldFilter FieldFilter::with(std::initializer_list<std::string_view> paths) const {
  FieldFilter out = *this;
  for (const std::string_view path : paths) out.add(path);
  return out;
}

FieldFilter FieldFilter::with_text(std::initializer_list<std::string_view> paths) const {
  FieldFilter out = *this;
  for (const std::string_view path : paths) node_at(out.root_, path).is_text = true;
  return out;
}

FieldFilter FieldFilter::nested(std::string_view key, std::initializer_list<std::string_view> paths) const {
  FieldFilter out;
  out.root_.members.emplace(key, root_);
  for (const std::string_view path : paths) out.add(path);
  return out;
}

struct FieldFilter::Buffers::Parts {
  simdjson::ondemand::parser parser;
  std::string text;  // its capacity includes the padding that the parser may read
};

FieldFilter::Buffers::Buffers() : parts_(std::make_unique<Parts>()) {}
FieldFilter::Buffers::~Buffers() = default;

Result<Json> FieldFilter::parse(std::string_view text) const {
  Buffers::Parts parts;
  return parse(text, parts);
}

Result<Json> FieldFilter::parse(std::string_view text, Buffers& buffers) const {
  return text.size() > kMaxReusedBytes ? parse(text) : parse(text, *buffers.parts_);
}

Result<Json> FieldFilter::parse(std::string_view text, Buffers::Parts& parts) const {
  try {
    parts.text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    parts.text = text;
    simdjson::ondemand::document document = parts.parser.iterate(parts.text);
    size_t room = kMaxValues;
    Json out = filter_value(document.get_value(), &root_, false, 0, room);
    const bool at_end = document.current_location().error() == simdjson::OUT_OF_BOUNDS;
    if (!at_end) throw simdjson::simdjson_error(simdjson::TRAILING_CONTENT);
    return out;
  } catch (const simdjson::simdjson_error& error) {
    if (error.error() == simdjson::DEPTH_ERROR)
      return fail(ExitCode::kDataErr, fmt::format("nested deeper than {} levels", kMaxDepth));
    if (error.error() == simdjson::CAPACITY && text.size() < simdjson::SIMDJSON_MAXSIZE_BYTES)
      return fail(ExitCode::kDataErr, fmt::format("more than {} values", kMaxValues));
    return fail(ExitCode::kDataErr, error.what());
  }
}

}  // namespace oarlock::kube
