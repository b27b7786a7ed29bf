// The YAML parser. It builds the tree from yaml-cpp's events, so that it can check the limits before it allocates
// memory. An alias shares the node of its anchor; its expanded size counts towards the limits.
#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <sstream>
#include <unordered_map>

#include "common/files.h"
#include "common/number.h"
#include "common/text.h"
#include "yaml/internal.h"

namespace oarlock::yaml {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

// A violation of a rule of this reader.
using Refusal = SyntaxProblem;

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
  if (tag == "tag:yaml.org,2002:null") return Tag::kNull;
  if (tag == "tag:yaml.org,2002:bool") return Tag::kBool;
  if (tag == "tag:yaml.org,2002:int") return Tag::kInt;
  if (tag == "tag:yaml.org,2002:float") return Tag::kFloat;
  return Tag::kOther;
}

// Returns the value of the escape \uXXXX at `at`; nothing if there is none.
std::optional<uint32_t> utf16_escape(std::string_view text, size_t at) {
  constexpr size_t kDigits = 4;
  if (text.size() < at + 2 + kDigits || text.substr(at, 2) != "\\u") return std::nullopt;
  return parse_integer<uint32_t>(text.substr(at + 2, kDigits), 16);
}

// JSON escapes a character beyond U+FFFF as a pair of surrogates (json.dump() does so), which YAML does not have.
// Returns JSON with each pair as one escape of YAML, and other text unchanged.
std::string with_yaml_escapes(std::string_view text) {
  constexpr uint32_t kHigh = 0xD800;
  constexpr uint32_t kLow = 0xDC00;
  constexpr size_t kEscape = 6;  // characters
  const auto is_pair = [&](size_t at) {
    const uint32_t high = utf16_escape(text, at).value_or(0);
    const uint32_t low = utf16_escape(text, at + kEscape).value_or(0);
    return (high & 0xFC00) == kHigh && (low & 0xFC00) == kLow;
  };
  std::string out;
  size_t copied = 0;
  for (size_t at = text.find('\\'); at != std::string_view::npos; at = text.find('\\', at)) {
    if (!is_pair(at)) {
      at += 2;  // an escaped backslash begins no escape
      continue;
    }
    if (out.empty() && !nlohmann::json::accept(text)) break;  // in YAML it can be a backslash and a letter
    const uint32_t code =
        0x10000 + ((*utf16_escape(text, at) - kHigh) << 10) + *utf16_escape(text, at + kEscape) - kLow;
    out += text.substr(copied, at - copied);
    out += fmt::format("\\U{:08x}", code);
    copied = at += 2 * kEscape;
  }
  return out.append(text.substr(copied));
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(std::string_view text, bool on_command_line) : text_(text), on_command_line_(on_command_line) {}

  // Returns all documents that are not empty.
  std::vector<Node> take_documents() { return std::move(documents_); }

  Mark mark_of(const YAML::Mark& mark) const {
    if (on_command_line_) return {.on_command_line = true};
    if (mark.is_null()) return {};
    return with_character_column(text_, static_cast<size_t>(mark.pos), {mark.line + 1, mark.column + 1});
  }

  void OnDocumentStart(const YAML::Mark& mark) override {
    if (++document_count_ > limits::kDocuments)
      throw Refusal{mark_of(mark), fmt::format("the file has more than {} documents", limits::kDocuments)};
    // yaml-cpp begins a document wherever a line does not continue the one before.
    if (document_count_ > 1 && !may_begin_document(text_, static_cast<size_t>(mark.pos))) {
      throw Refusal{mark_of(mark),
                    "this line does not belong to the list or map above it; indent it like the lines above, "
                    "or write --- before it if it begins another document"};
    }
    anchors_.clear();
  }
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    // yaml-cpp accepts a last key without a colon. The position of its value is then that of the key.
    if (!open_.empty() && open_.back().is_block_map && open_.back().key && open_.back().key->mark == mark_of(mark)) {
      throw Refusal{mark_of(mark), missing_colon_message(open_.back().key->text)};
    }
    if (!open_.empty() && open_.back().is_flow_list && text_.substr(static_cast<size_t>(mark.pos)).starts_with(','))
      throw Refusal{mark_of(mark), "a value is missing before this comma; remove the comma, or write null"};
    add_scalar(mark, Tag::kNone, anchor, "");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    check_tag(mark, tag);
    if (tag == "!" && !has_closing_quote(text_, static_cast<size_t>(mark.pos))) {  // yaml-cpp accepts it
      const char quote = text_[static_cast<size_t>(mark.pos)];
      throw Refusal{mark_of(mark),
                    fmt::format("the quote {} that begins here has no end; add the closing {}", quote, quote)};
    }
    check_value(mark, tag, value);
    add_scalar(mark, tag_of(tag), anchor, value);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    const auto found = anchors_.find(anchor);
    if (found == anchors_.end()) throw Refusal{mark_of(mark), "the alias is inside of the node that it refers to"};
    count(mark, found->second.extent);
    attach(mark, found->second.node, found->second.extent);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, Node::Kind::kSequence);
    open_.back().is_flow_list = style == YAML::EmitterStyle::Flow;
  }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    open(mark, tag, anchor, Node::Kind::kMap);
    open_.back().is_block_map = style != YAML::EmitterStyle::Flow && !on_command_line_;
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
    bool is_quoted = false;
    bool is_merge = false;  // the plain key <<
  };
  // A sequence or map whose end has not been seen.
  struct Open {
    YAML::Mark mark;
    YAML::anchor_t anchor = YAML::NullAnchor;
    bool is_block_map = false;
    bool is_flow_list = false;
    Node::Data data;
    Extent extent;
    std::optional<Key> key;                     // of a map: the key of the next value
    std::unordered_map<std::string, int> keys;  // of a map: the lines of all keys so far
    std::vector<Node::Entry> merged;            // of a map: the entries of its merge keys
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

  // Rejects tags that kubectl cannot apply to the value.
  void check_value(const YAML::Mark& mark, const std::string& tag, const std::string& text) const {
    constexpr std::string_view kStandard = "tag:yaml.org,2002:";
    if (!tag.starts_with(kStandard)) return;
    const std::string_view name = std::string_view(tag).substr(kStandard.size());
    if (name == "binary")
      throw Refusal{mark_of(mark), "the tag !!binary is not supported; write the text, or use a Secret for bytes"};
    const nlohmann::json value = scalar_value(text, tag_of(tag));
    const bool is_right = name == "null"    ? value.is_null()
                          : name == "bool"  ? value.is_boolean()
                          : name == "int"   ? value.is_number_integer()
                          : name == "float" ? value.is_number()
                                            : true;
    if (is_right) return;
    throw Refusal{mark_of(mark),
                  fmt::format("'{}' has the tag !!{}, and is not of this type; correct the value, or remove the tag",
                              shortened(text), name)};
  }

  void add_scalar(const YAML::Mark& mark, Tag tag, YAML::anchor_t anchor, const std::string& text) {
    const Extent extent{.nodes = 1, .bytes = text.size(), .height = 0};
    count(mark, extent);
    Node::Data data;
    data.mark = mark_of(mark);
    data.text = text;
    data.tag = tag;
    data.kind = scalar_value(text, tag).is_null() ? Node::Kind::kNull : Node::Kind::kScalar;
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
    for (Node::Entry& entry : closed.merged) {
      if (closed.keys.try_emplace(entry.key, entry.key_mark.line).second)
        closed.data.entries.push_back(std::move(entry));
    }
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
      if (parent.key->is_merge) {
        merge(parent, node);
      } else {
        parent.data.entries.push_back({std::move(parent.key->text), parent.key->mark, node, parent.key->is_quoted});
      }
      parent.key.reset();
    } else {
      const auto at = static_cast<size_t>(mark.pos);
      if (node.kind() == Node::Kind::kMap && at > 0 && text_.substr(at - 1).starts_with("{{"))
        throw Refusal{mark_of(mark), std::string(kHelmTemplate)};
      set_key(parent, mark_of(mark), node);
    }
  }

  static void set_key(Open& map, Mark mark, const Node& node) {
    const bool is_scalar = node.kind() == Node::Kind::kScalar || !node.text().empty();
    if (!is_scalar) throw Refusal{mark, "a key of a map is empty, a list or a map; it must be a string"};
    map.key = Key{node.text(), mark, node.is_quoted(), !node.is_quoted() && node.text() == "<<"};
    if (map.key->is_merge) return;
    const auto [first, is_new] = map.keys.try_emplace(map.key->text, mark.line);
    if (is_new) return;
    const std::string place = first->second == 0 ? "" : fmt::format(" of them; the first is in line {}", first->second);
    throw Refusal{mark, fmt::format("duplicate key '{}'; remove one{}", shortened(map.key->text), place)};
  }

  // Adds the entries of the value of a merge key. The keys of the map itself take precedence, and then the earlier maps
  // of a list. kubectl lets a merge key replace the keys above it, so that such a file has two meanings.
  static void merge(Open& map, const Node& value) {
    const Mark mark = map.key->mark;
    const std::vector<Node> sources = value.kind() == Node::Kind::kSequence ? value.items() : std::vector<Node>{value};
    for (const Node& source : sources) {
      if (source.kind() != Node::Kind::kMap)
        throw Refusal{mark, "the value of the merge key << must be a map, such as *name, or a list of maps"};
      for (Node::Entry& entry : source.entries()) {
        if (map.keys.contains(entry.key)) {
          throw Refusal{mark,
                        fmt::format("the key '{}' is above the merge key <<, whose map has it too; write << first",
                                    shortened(entry.key))};
        }
        map.merged.push_back(std::move(entry));
      }
    }
  }

  std::string_view text_;
  bool on_command_line_;
  size_t document_count_ = 0;
  size_t nodes_ = 0;
  size_t bytes_ = 0;
  std::unordered_map<YAML::anchor_t, Anchored> anchors_;  // of this document
  std::vector<Open> open_;
  std::vector<Node> documents_;
};

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
  if (std::optional<Refusal> bad = find_unreadable_text(text)) return refuse(std::move(*bad));
  std::string_view content = text;
  if (content.starts_with(kByteOrderMark)) content.remove_prefix(kByteOrderMark.size());
  const std::string yaml = with_yaml_escapes(content);
  content = yaml;
  TreeBuilder builder(content, on_command_line);
  try {
    std::istringstream stream{yaml};
    YAML::Parser parser(stream);
    while (parser.HandleNextDocument(builder)) {
    }
  } catch (Refusal& refusal) {
    return refuse(std::move(refusal));
  } catch (const YAML::Exception& error) {
    // The bytes of a column are needed here, not its characters.
    const Mark position = error.mark.is_null() ? Mark{} : Mark{error.mark.line + 1, error.mark.column + 1};
    return refuse(explain_syntax_error(content, position, error.msg));
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
