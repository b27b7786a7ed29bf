// Text for files whose readers reject what is not well-formed UTF-8: JSON, and protocol buffers, of which one invalid
// field of the type `string` makes a whole message unreadable. Names of metrics, host names and variables of the
// environment may contain any bytes.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace oarlock {

// Replaces each byte that is not part of well-formed UTF-8 by U+FFFD.
std::string replace_invalid_utf8(std::string_view text);

// The same without a copy of a well-formed text: returns `text` itself, or `replaced` after a change.
std::string_view to_valid_utf8(std::string_view text, std::string& replaced);

// Adds a field of the type `string` to a message, a protozero::pbf_writer. Invalid bytes are replaced.
template <typename Message>
void add_utf8(Message& message, uint32_t field, std::string_view text) {
  std::string replaced;
  const std::string_view valid = to_valid_utf8(text, replaced);
  message.add_string(field, valid.data(), valid.size());
}

// Returns JSON, in one line unless an indentation is given. Invalid bytes are replaced.
std::string dump_json(const nlohmann::json& value, int indent = -1);

}  // namespace oarlock
