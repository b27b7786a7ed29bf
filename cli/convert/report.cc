#include "cli/convert/report.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/json_access.h"
#include "common/text.h"
#include "yaml/path.h"

namespace oarlock::convert {
namespace {

const Json& empty_object() {
  static const Json kEmpty = Json::object();
  return kEmpty;
}

std::string value_text(const Json& value) { return shortened(dump_json(value)); }

}  // namespace

Json to_ordered_json(const yaml::Node& node) {
  switch (node.kind()) {
    case yaml::Node::Kind::kMap: {
      Json out = Json::object();
      auto& members = out.get_ref<Json::object_t&>();  // its operator[] would search; keys of a document are unique
      for (const yaml::Node::Entry& entry : node.entries())
        members.emplace_back(entry.key, to_ordered_json(entry.value));
      return out;
    }
    case yaml::Node::Kind::kSequence: {
      Json out = Json::array();
      for (const yaml::Node& item : node.items()) out.push_back(to_ordered_json(item));
      return out;
    }
    default:
      return Json(node.to_json());
  }
}

void Report::note(const std::string& path, const std::string& message) {
  if (++count_ > kMaxNotes) return;
  const yaml::Mark mark = yaml::find_place(root_, path).mark;
  const std::string place = mark.line > 0 ? fmt::format("{}:{}:{}", file_, mark.line, mark.column) : file_;
  notes_.push_back(fmt::format("{}: {}", place, to_note(path, message)));
}

void Report::problem(const std::string& path, const std::string& message) {
  // The search takes as long as the lists on the path, so that it is not made for problems that are only counted.
  problems_.add(problems_.is_full() ? yaml::Mark{} : yaml::find_place(root_, path).mark, path, message);
}

void Report::note_unhandled_below(const Json& value, const std::string& path) {
  if (value.is_null() || handled_.contains(path)) return;
  if (!entered_.contains(path)) return note(path, "is not a known field; not carried over");
  if (value.is_object()) {
    for (const auto& [key, member] : value.items())
      note_unhandled_below(member, path.empty() ? key : fmt::format("{}.{}", path, key));
  } else if (value.is_array()) {
    for (size_t i = 0; i < value.size(); ++i) note_unhandled_below(value[i], fmt::format("{}[{}]", path, i));
  }
}

void Report::note_unhandled(const Json& document) { note_unhandled_below(document, ""); }

std::vector<std::string> Report::notes() const {
  std::vector<std::string> out = notes_;
  if (count_ > kMaxNotes)
    out.push_back(fmt::format("{}: note: and {}", file_, counted(count_ - kMaxNotes, "more note")));
  return out;
}

std::string to_note(std::string_view what, std::string_view message) {
  if (what.empty()) return fmt::format("note: {}", printable(message));
  return fmt::format("note: {}: {}", shortened(what, 200), printable(message));
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = first_utf8_character(text).length;
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

ObjectReader::ObjectReader(const Json& object, std::string path, Report& report)
    : object_(&object), path_(std::move(path)), report_(report) {
  report_.mark_entered(path_);
  if (!object.is_object()) {
    if (!object.is_null()) report_.problem(path_, fmt::format("expected a map, got {}", object.type_name()));
    object_ = &empty_object();
  }
}

const Json* ObjectReader::take(const std::string& key) {
  report_.mark_handled(path_of(key));
  const auto found = object_->find(key);
  return found == object_->end() || found->is_null() ? nullptr : &*found;
}

const Json* ObjectReader::of_type(const std::string& key, Json::value_t type, const char* name) {
  const Json* value = take(key);
  if (value == nullptr || value->type() == type) return value;
  problem(key, fmt::format("expected {}, got {}", name, value->type_name()));
  return nullptr;
}

std::string ObjectReader::text(const std::string& key) {
  const Json* value = of_type(key, Json::value_t::string, "a string");
  return value == nullptr ? "" : value->get<std::string>();
}

std::optional<int64_t> ObjectReader::integer(const std::string& key) {
  const Json* value = take(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_unsigned() && value->get<uint64_t>() <= INT64_MAX)
    return static_cast<int64_t>(value->get<uint64_t>());
  if (value->is_number_integer() && !value->is_number_unsigned()) return value->get<int64_t>();
  problem(key, fmt::format("expected an integer, got {}", value_text(*value)));
  return std::nullopt;
}

std::optional<bool> ObjectReader::boolean(const std::string& key) {
  const Json* value = of_type(key, Json::value_t::boolean, "true or false");
  return value == nullptr ? std::nullopt : std::optional(value->get<bool>());
}

std::vector<std::string> ObjectReader::texts(const std::string& key) {
  const Json* value = of_type(key, Json::value_t::array, "a list");
  if (value == nullptr) return {};
  for (const Json& item : *value) {
    if (!item.is_string()) problem(key, fmt::format("expected strings, got {}", value_text(item)));
  }
  return json_words(*value);
}

ObjectReader ObjectReader::object(const std::string& key) {
  const Json& value = member(*object_, key);
  return {value.is_null() ? empty_object() : value, path_of(key), report_};
}

std::vector<ObjectReader> ObjectReader::objects(const std::string& key) {
  std::vector<ObjectReader> out;
  report_.mark_entered(path_of(key));
  const Json& list = member(*object_, key);
  if (!list.is_array()) {
    of_type(key, Json::value_t::array, "a list");  // reports it
    return out;
  }
  for (size_t i = 0; i < list.size(); ++i) out.emplace_back(list[i], fmt::format("{}[{}]", path_of(key), i), report_);
  return out;
}

void ObjectReader::drop(const std::string& key, const std::string& message) {
  if (take(key) != nullptr) note(key, message);
}

void ObjectReader::drop_unless(const std::string& key, std::initializer_list<Json> equivalents,
                               const std::string& message) {
  const Json* value = take(key);
  if (value != nullptr && std::ranges::find(equivalents, *value) == equivalents.end()) note(key, message);
}

std::vector<std::string> json_words(const Json& list) {
  std::vector<std::string> out;
  if (!list.is_array()) return out;
  for (const Json& item : list) {
    if (item.is_string()) out.push_back(item.get<std::string>());
  }
  return out;
}

}  // namespace oarlock::convert
