// What a Node holds; for the files of this folder only.
#pragma once

#include "common/yaml/reader.h"

namespace oarlock::yaml {

struct Node::Data {
  Kind kind = Kind::kNull;
  Mark mark;
  std::string text;  // of a scalar
  std::string tag;   // yaml-cpp's; "!" for a quoted scalar
  std::vector<Entry> entries;
  std::vector<Node> items;
};

inline Node make_node(Node::Data data) { return Node(std::make_shared<const Node::Data>(std::move(data))); }

// parse_all() of a value on the command line, which is what its marks say.
Result<std::vector<Node>> parse_command_line(const std::string& text);

}  // namespace oarlock::yaml
