#include "trainer/tracking/utf8.h"

#include <cstdint>
#include <cstring>

#include "common/text.h"

namespace oarlock {
namespace {

// Returns the number of bytes before the first one that is not part of well-formed UTF-8.
size_t valid_length(std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    uint64_t word = 0;
    if (text.size() - done >= sizeof word) {
      std::memcpy(&word, text.data() + done, sizeof word);
      if ((word & 0x8080808080808080) == 0) {  // ASCII
        done += sizeof word;
        continue;
      }
    }
    const size_t length = first_utf8_character(text.substr(done)).length;
    if (length == 0) break;
    done += length;
  }
  return done;
}

}  // namespace

std::string replace_invalid_utf8(std::string_view text) {
  const size_t valid = valid_length(text);
  std::string out(text.substr(0, valid));
  text.remove_prefix(valid);
  while (!text.empty()) {
    const size_t length = first_utf8_character(text).length;
    if (length == 0) {
      out += "\uFFFD";
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  return out;
}

std::string_view to_valid_utf8(std::string_view text, std::string& replaced) {
  if (valid_length(text) == text.size()) return text;
  return replaced = replace_invalid_utf8(text);
}

std::string dump_json(const nlohmann::json& value, int indent) {
  return value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace oarlock
