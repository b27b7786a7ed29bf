// Explanations of YAML syntax errors. Other folders do not include this header.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "common/yaml/reader.h"

namespace oarlock::yaml {

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
