// The content of a Node; for the files of this folder only.
#pragma once

#include "common/yaml/reader.h"

namespace oarlock::yaml {

// The tag of a scalar, as far as it decides the type of the value.
enum class Tag { kNone, kQuoted, kString, kFloat, kOther };

struct Node::Data {
  Kind kind = Kind::kNull;
  Mark mark;
  std::string text;  // of a scalar
  Tag tag = Tag::kNone;
  std::vector<Entry> entries;
  std::vector<Node> items;
};

inline Node make_node(Node::Data data) { return Node(std::make_shared<const Node::Data>(std::move(data))); }

// parse_all() of a value on the command line, which is what its marks say.
Result<std::vector<Node>> parse_command_line(const std::string& text);

// "file:line:column", "command line", or the file alone where the line is not known; for the beginning of a message.
std::string place_text(const std::string& file, Mark mark);

// Whether a plain scalar with this text is null.
bool is_null_text(const std::string& text);

}  // namespace oarlock::yaml
