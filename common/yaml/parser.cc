// The YAML parser. It builds the tree from yaml-cpp's events, so that it can check the limits before it allocates
// memory. An alias shares the node of its anchor; its expanded size counts towards the limits.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "common/files.h"
#include "common/text.h"
#include "common/yaml/node_data.h"

namespace oarlock::yaml {
namespace {

constexpr size_t kLongestError = 300;

// A violation of a rule of this reader.
struct Refusal {
  Mark mark;
  std::string message;
};

// The size of a node with all aliases expanded.
struct Extent {
  size_t nodes = 1;
  size_t bytes = 0;   // of scalars and keys
  size_t height = 0;  // levels below the node

  void add_child(const Extent& child) {
    nodes += child.nodes;
    bytes += child.bytes;
    height = std::max(height, child.height + 1);
  }
};

Tag tag_of(const std::string& tag) {
  if (tag.empty() || tag == "?") return Tag::kNone;
  if (tag == "!") return Tag::kQuoted;  // also of a block scalar
  if (tag == "tag:yaml.org,2002:str") return Tag::kString;
  if (tag == "tag:yaml.org,2002:float") return Tag::kFloat;
  return Tag::kOther;
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  explicit TreeBuilder(bool on_command_line) : on_command_line_(on_command_line) {}

  // Returns all documents that are not empty.
  std::vector<Node> take_documents() { return std::move(documents_); }

  Mark mark_of(const YAML::Mark& mark) const {
    if (on_command_line_) return {.on_command_line = true};
    return mark.is_null() ? Mark{} : Mark{mark.line + 1, mark.column + 1};
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++document_count_ > limits::kDocuments)
      throw Refusal{mark_of(mark), fmt::format("the file has more than {} documents", limits::kDocuments)};
    anchors_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override { add_scalar(mark, Tag::kNone, anchor, ""); }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    add_scalar(mark, tag_of(tag), anchor, value);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Refusal{mark_of(mark), "the alias is inside of the node that it refers to"};
    count(mark, found->second.extent);
    attach(mark, found->second.node, found->second.extent);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Node::Kind::kSequence);
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value /*style*/) override {
    open(mark, tag, anchor, Node::Kind::kMap);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapEnd() override { close(); }

 private:
  struct Anchored {
    Node node;
    Extent extent;
  };
  struct Key {
    std::string text;
    Mark mark;
  };
  // A sequence or map whose end has not been seen.
  struct Open {
    YAML::Mark mark;
    YAML::anchor_t anchor = YAML::NullAnchor;
    Node::Data data;
    Extent extent;
    std::optional<Key> key;                // of a map: the key of the next value
    std::unordered_set<std::string> keys;  // of a map: all keys so far
  };

  // A %TAG directive can make a short tag arbitrarily long.
  void check_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (tag.size() > limits::kTagBytes)
      throw Refusal{mark_of(mark), fmt::format("the tag has more than {} bytes", limits::kTagBytes)};
  }

  // Throws a Refusal if the input so far is too large or too deep, with aliases expanded.
  void count(const YAML::Mark& mark, const Extent& extent) {
    nodes_ += extent.nodes;
    bytes_ += extent.bytes;
    if (nodes_ > limits::kNodes) {
      throw Refusal{mark_of(mark), fmt::format("the file has more than {} values, with its aliases expanded; split it, "
                                               "or use fewer aliases",
                                               limits::kNodes)};
    }
    if (bytes_ > limits::kExpandedBytes) {
      throw Refusal{mark_of(mark), fmt::format("the values have more than {} bytes, with aliases expanded; use fewer "
                                               "aliases",
                                               limits::kExpandedBytes)};
    }
    if (open_.size() + extent.height > limits::kDepth)
      throw Refusal{mark_of(mark), fmt::format("lists and maps are nested deeper than {} levels", limits::kDepth)};
  }

  void add_scalar(const YAML::Mark& mark, Tag tag, YAML::anchor_t anchor, const std::string& text) {
    const Extent extent{.nodes = 1, .bytes = text.size(), .height = 0};
    count(mark, extent);
    Node::Data data;
    data.mark = mark_of(mark);
    data.text = text;
    data.tag = tag;
    data.kind = tag != Tag::kQuoted && is_null_text(text) ? Node::Kind::kNull : Node::Kind::kScalar;
    finish(mark, anchor, make_node(std::move(data)), extent);
  }

  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor, Node::Kind kind) {
    check_tag(mark, tag);
    count(mark, Extent{.nodes = 1, .bytes = 0, .height = 1});
    Open& opened = open_.emplace_back();
    opened.mark = mark;
    opened.anchor = anchor;
    opened.data.kind = kind;
    opened.data.mark = mark_of(mark);
  }

  void close() {
    Open closed = std::move(open_.back());
    open_.pop_back();
    finish(closed.mark, closed.anchor, make_node(std::move(closed.data)), closed.extent);
  }

  void finish(const YAML::Mark& mark, YAML::anchor_t anchor, const Node& node, const Extent& extent) {
    if (anchor != YAML::NullAnchor) anchors_.insert_or_assign(anchor, Anchored{node, extent});
    attach(mark, node, extent);
  }

  // Adds the node to the innermost open node, or to the documents.
  void attach(const YAML::Mark& mark, const Node& node, const Extent& extent) {
    if (open_.empty()) {
      if (node.kind() != Node::Kind::kNull) documents_.push_back(node);
      return;
    }
    Open& parent = open_.back();
    parent.extent.add_child(extent);
    if (parent.data.kind == Node::Kind::kSequence) {
      parent.data.items.push_back(node);
    } else if (parent.key) {
      parent.data.entries.push_back({std::move(parent.key->text), parent.key->mark, node});
      parent.key.reset();
    } else {
      set_key(parent, mark_of(mark), node);
    }
  }

  static void set_key(Open& map, Mark mark, const Node& node) {
    const bool is_scalar = node.kind() == Node::Kind::kScalar || !node.text().empty();
    if (!is_scalar) throw Refusal{mark, "a key of a map is empty, a list or a map; it must be a string"};
    map.key = Key{node.text(), mark};
    if (!map.keys.insert(map.key->text).second)
      throw Refusal{mark, fmt::format("duplicate key '{}'; remove one", shortened(map.key->text))};
  }

  bool on_command_line_;
  size_t document_count_ = 0;
  size_t nodes_ = 0;
  size_t bytes_ = 0;
  std::unordered_map<YAML::anchor_t, Anchored> anchors_;  // of this document
  std::vector<Open> open_;
  std::vector<Node> documents_;
};

// Returns true for the characters of a YAML stream (YAML 1.2, c-printable). yaml-cpp treats U+0004 as the end of the
// file.
bool is_allowed(char32_t code) {
  return code == '\t' || code == '\n' || code == '\r' || (code >= 0x20 && code <= 0x7E) || code == 0x85 ||
         (code >= 0xA0 && code != 0xFFFE && code != 0xFFFF);
}

std::optional<Refusal> find_bad_character(std::string_view text) {
  Mark mark{.line = 1, .column = 1};
  while (!text.empty()) {
    const Utf8Character character = first_utf8_character(text);
    if (character.length == 0) {
      return Refusal{mark, fmt::format("this is not YAML: the byte {} is not UTF-8; save the file as UTF-8",
                                       printable(text.substr(0, 1)))};
    }
    if (!is_allowed(character.code)) {
      return Refusal{mark, fmt::format("this is not YAML: the control character {} is not allowed here; write it as an "
                                       "escape sequence in double quotes",
                                       printable(text.substr(0, character.length)))};
    }
    if (character.code == '\n') {
      ++mark.line;
      mark.column = 1;
    } else {
      ++mark.column;
    }
    text.remove_prefix(character.length);
  }
  return std::nullopt;
}

Result<std::vector<Node>> parse(const std::string& text, const std::string& file, bool on_command_line) {
  const auto refuse = [&](Refusal refusal) {
    if (on_command_line) return fail(ExitCode::kConfig, std::move(refusal.message));
    return fail(ExitCode::kConfig, fmt::format("{}: {}", place_text(file, refusal.mark), refusal.message));
  };
  if (text.size() > limits::kFileBytes) {
    return refuse({Mark{}, fmt::format("the file has more than {} bytes, which is more than a configuration needs; is "
                                       "it the right file?",
                                       limits::kFileBytes)});
  }
  if (std::optional<Refusal> bad = find_bad_character(text)) return refuse(std::move(*bad));
  TreeBuilder builder(on_command_line);
  try {
    std::istringstream stream(text);
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (Refusal& refusal) {
    return refuse(std::move(refusal));
  } catch (const YAML::Exception& error) {
    return refuse(
        {builder.mark_of(error.mark), fmt::format("this is not YAML: {}", shortened(error.msg, kLongestError))});
  }
  return builder.take_documents();
}

}  // namespace

Result<std::vector<Node>> parse_all(const std::string& text, const std::string& name) {
  return parse(text, name, /*on_command_line=*/false);
}

Result<std::vector<Node>> parse_command_line(const std::string& text) {
  return parse(text, "", /*on_command_line=*/true);
}

Result<std::vector<Node>> load_all(const std::string& path) {
  // Reads one byte more than the limit, so that parse_all() can report a larger file.
  return read_file(path, limits::kFileBytes + 1).and_then([&](const std::string& text) {
    return parse_all(text, path);
  });
}

}  // namespace oarlock::yaml
