// Internals of yaml, which other directories do not include.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "yaml/reader.h"

namespace oarlock::yaml {

// ---- Nodes -----------------------------------------------------------------------------------------------------

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

// ---- Plain scalars, which are those without quotes -------------------------------------------------------------

// Returns the value that kubectl gives a plain scalar without a tag: null, a boolean, an integer, a floating-point
// number or a string. kubectl reads YAML 1.1 with sigs.k8s.io/yaml, whose package goyaml.v2 resolves scalars in
// resolve.go: y, yes and on are true, n, no and off are false, 017 and 0o17 are 15, and 1_000 is 1000. 1:30 and
// 2026-11-24 are strings. The value can be infinite or NaN, which JSON does not have. An integer that does not fit
// int64_t is a floating-point number, as the API server stores it.
nlohmann::json resolve_plain_scalar(const std::string& text);

// Converts a finite floating-point number as kubectl does on its way to the API server: 1e3 and 2.0 become the integers
// 1000 and 2. Other values are returned unchanged.
nlohmann::json with_whole_number(nlohmann::json value);

// ---- Syntax errors ---------------------------------------------------------------------------------------------

inline constexpr std::string_view kHelmTemplate =
    "'{{' is part of a template of Helm; render the file first, with helm template";

struct SyntaxProblem {
  Mark mark;
  std::string message;
};

// Returns the first problem of the text that the parser would not report, or would report at another place: another
// encoding than UTF-8, a control character, a byte order mark inside of the text, or a conflict marker of git.
std::optional<SyntaxProblem> find_unreadable_text(std::string_view text);

// Returns the cause of a syntax error that the parser reported at a position, which is often after the cause. `message`
// is the message of the parser, which is returned if the cause is unknown. `text` is valid UTF-8.
SyntaxProblem explain_syntax_error(std::string_view text, Mark position, std::string_view message);

// Returns the message for a line without a ':' after its key; `content` is the line without its indentation.
std::string missing_colon_message(std::string_view content);

// Whether the quoted scalar that begins at an offset of the text has an end. Returns true if no quote is there.
bool has_closing_quote(std::string_view text, size_t offset);

// Whether a document may begin at an offset of the text, after another document: at "---" or a JSON object. kubectl
// ignores other documents, also those after "...".
bool may_begin_document(std::string_view text, size_t offset);

// Converts a position whose column counts bytes to one whose column counts characters. `offset` is that of the
// position.
Mark with_character_column(std::string_view text, size_t offset, Mark position);

}  // namespace oarlock::yaml
