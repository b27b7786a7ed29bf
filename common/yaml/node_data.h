// Internals of common/yaml, which other folders do not include.
#pragma once

#include <nlohmann/json.hpp>

#include "common/yaml/reader.h"

namespace oarlock::yaml {

// The tag of a scalar, as far as it determines the type of the value. A scalar with kOther is a string.
enum class Tag { kNone, kQuoted, kString, kNull, kBool, kInt, kFloat, kOther };

struct Node::Data {
  Kind kind = Kind::kNull;
  Mark mark;
  std::string text;  // of a scalar
  Tag tag = Tag::kNone;
  std::vector<Entry> entries;
  std::vector<Node> items;
};

inline Node make_node(Node::Data data) { return Node(std::make_shared<const Node::Data>(std::move(data))); }

// Like parse_all(), for a value on the command line: all marks have on_command_line set.
Result<std::vector<Node>> parse_command_line(const std::string& text);

// Formats the beginning of a message: "file:line:column", "command line", or "file" if the line is unknown.
std::string place_text(const std::string& file, Mark mark);

// Returns the value of a scalar, which can be infinite or NaN. With a tag of a type, the value can have another type;
// the parser rejects such scalars.
nlohmann::json scalar_value(const std::string& text, Tag tag);

}  // namespace oarlock::yaml
