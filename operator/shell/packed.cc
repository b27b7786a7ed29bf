#include "operator/shell/packed.h"

#include <array>

namespace oarlock::control {
namespace {

constexpr size_t kUuidText = 36;
constexpr size_t kUuidBytes = 16;

bool is_dash(size_t i) { return i == 8 || i == 13 || i == 18 || i == 23; }

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

// Returns the 16 bytes of "01234567-89ab-...", which is the form of every uid; nothing for other texts.
std::optional<std::array<char, kUuidBytes>> uuid_of(std::string_view text) {
  if (text.size() != kUuidText) return std::nullopt;
  std::array<char, kUuidBytes> out{};
  size_t digits = 0;
  for (size_t i = 0; i < kUuidText; ++i) {
    if (is_dash(i)) {
      if (text[i] != '-') return std::nullopt;
      continue;
    }
    const int value = nibble(text[i]);
    if (value < 0) return std::nullopt;
    out[digits / 2] = static_cast<char>(digits % 2 == 0 ? value << 4 : out[digits / 2] | value);
    ++digits;
  }
  return out;
}

std::string text_of_uuid(const char* bytes) {
  std::string out;
  out.reserve(kUuidText);
  for (size_t digits = 0; out.size() < kUuidText;) {
    if (is_dash(out.size())) {
      out += '-';
      continue;
    }
    const auto byte = static_cast<unsigned char>(bytes[digits / 2]);
    out += "0123456789abcdef"[digits % 2 == 0 ? byte >> 4 : byte & 15];
    ++digits;
  }
  return out;
}

}  // namespace

void PackWriter::number(uint64_t value) {
  for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
  bytes_ += static_cast<char>(value);
}

uint64_t PackReader::number() {
  uint64_t value = 0;
  for (int shift = 0;; shift += 7) {
    const auto byte = static_cast<unsigned char>(*at_++);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
}

// Writes length + 1 and the text, or 0 and 16 bytes for a UUID.
void PackWriter::operator()(const std::string& text) {
  if (const auto uuid = uuid_of(text)) {
    number(0);
    bytes_.append(uuid->data(), uuid->size());
    return;
  }
  number(text.size() + 1);
  bytes_ += text;
}

void PackReader::operator()(std::string& text) {
  const uint64_t length = number();
  if (length == 0) {
    text = text_of_uuid(at_);
    at_ += kUuidBytes;
    return;
  }
  text.assign(at_, length - 1);
  at_ += length - 1;
}

void PackWriter::operator()(SystemTime value) { number(static_cast<uint64_t>(value.time_since_epoch().count())); }

void PackReader::operator()(SystemTime& value) {
  value = SystemTime(SystemTime::duration(static_cast<SystemTime::rep>(number())));
}

}  // namespace oarlock::control
