#include "operator/kube/field_filter.h"

#include <simdjson.h>

#include <nlohmann/json.hpp>

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;
using Node = FieldFilter::Node;
using simdjson::ondemand::json_type;
using simdjson::ondemand::number_type;

constexpr size_t kLongText = 256u << 10;

Json number_of(simdjson::ondemand::number number) {
  switch (number.get_number_type()) {
    case number_type::signed_integer:
      return number.get_int64();
    case number_type::unsigned_integer:
      return number.get_uint64();
    default:
      return number.get_double();
  }
}

// What the filter keeps of a value; the parser skips what is not asked for. Throws simdjson_error.
Json kept(simdjson::ondemand::value value, const Node& filter) {
  switch (value.type()) {
    case json_type::object: {
      Json out = Json::object();
      for (auto field : value.get_object()) {
        const std::string_view key = field.unescaped_key();
        const auto found = filter.everything ? filter.members.end() : filter.members.find(key);
        if (!filter.everything && found == filter.members.end()) continue;
        std::string name(key);
        out[std::move(name)] = kept(field.value(), filter.everything ? filter : found->second);
      }
      return out;
    }
    case json_type::array: {
      Json out = Json::array();
      for (auto element : value.get_array()) out.push_back(kept(element.value(), filter));
      return out;
    }
    case json_type::string:
      return std::string_view(value.get_string());
    case json_type::number:
      return number_of(value.get_number());
    case json_type::boolean:
      return bool(value.get_bool());
    default:
      if (!value.is_null()) throw simdjson::simdjson_error(simdjson::N_ATOM_ERROR);
      return nullptr;
  }
}

void add_path(Node& node, std::string_view path) {
  std::string key;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 1 < path.size()) {
      key += path[++i];
    } else if (path[i] == '.') {
      return add_path(node.members[key], path.substr(i + 1));
    } else {
      key += path[i];
    }
  }
  node.members[key].everything = true;
}

}  // namespace

FieldFilter::FieldFilter(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) add(path);
}

void FieldFilter::add(std::string_view path) { add_path(root_, path); }

FieldFilter FieldFilter::with(std::initializer_list<std::string_view> paths) const {
  FieldFilter out = *this;
  for (const std::string_view path : paths) out.add(path);
  return out;
}

FieldFilter FieldFilter::nested(std::string_view key, std::initializer_list<std::string_view> beside) const {
  FieldFilter out;
  out.root_.members.emplace(key, root_);
  for (const std::string_view path : beside) out.add(path);
  return out;
}

struct FieldFilter::Buffers::Parts {
  simdjson::ondemand::parser parser;
  std::string text;  // with room behind it that the parser may read
};

FieldFilter::Buffers::Buffers() : parts_(std::make_unique<Parts>()) {}
FieldFilter::Buffers::~Buffers() = default;

Result<Json> FieldFilter::parse(std::string_view text) const {
  Buffers::Parts parts;
  return parse(text, parts);
}

Result<Json> FieldFilter::parse(std::string_view text, Buffers& buffers) const {
  return text.size() > kLongText ? parse(text) : parse(text, *buffers.parts_);
}

Result<Json> FieldFilter::parse(std::string_view text, Buffers::Parts& parts) const {
  try {
    parts.text.reserve(text.size() + simdjson::SIMDJSON_PADDING);
    parts.text = text;
    simdjson::ondemand::document document = parts.parser.iterate(parts.text);
    Json out = kept(document.get_value(), root_);
    const bool at_end = document.current_location().error() == simdjson::OUT_OF_BOUNDS;
    if (!at_end) throw simdjson::simdjson_error(simdjson::TRAILING_CONTENT);
    return out;
  } catch (const simdjson::simdjson_error& error) {
    return fail(ExitCode::kDataErr, error.what());
  }
}

}  // namespace oarlock::kube
