#include "common/http/client_hello.h"

#include <cstdint>

namespace oarlock {
namespace {

constexpr uint8_t kHandshakeRecord = 22;
constexpr uint8_t kMajorVersion = 3;
constexpr uint8_t kClientHello = 1;
constexpr size_t kRecordHeader = 5;   // type, version, and length in 2 bytes
constexpr size_t kMessageHeader = 4;  // type, and length in 3 bytes

uint8_t byte_at(std::string_view bytes, size_t at) { return static_cast<uint8_t>(bytes[at]); }

}  // namespace

ClientHelloState inspect_client_hello(std::string_view bytes, size_t limit) {
  if (bytes.size() > limit) return ClientHelloState::kInvalid;
  size_t received = 0;               // bytes of the message
  size_t expected = kMessageHeader;  // size of the message, as far as it is known
  for (size_t at = 0; at < bytes.size();) {
    const std::string_view record = bytes.substr(at);
    if (byte_at(record, 0) != kHandshakeRecord) return ClientHelloState::kInvalid;
    if (record.size() > 1 && byte_at(record, 1) != kMajorVersion) return ClientHelloState::kInvalid;
    if (record.size() < kRecordHeader) break;
    const size_t length = byte_at(record, 3) * 256u + byte_at(record, 4);
    if (length == 0) return ClientHelloState::kInvalid;
    for (const char c : record.substr(kRecordHeader, length)) {
      const auto value = static_cast<uint8_t>(c);
      if (received == 0 && value != kClientHello) return ClientHelloState::kInvalid;
      if (received > 0 && received < kMessageHeader) expected += size_t{value} << (8 * (kMessageHeader - 1 - received));
      if (++received == kMessageHeader && expected > limit) return ClientHelloState::kInvalid;
      if (received >= kMessageHeader && received == expected) return ClientHelloState::kComplete;
    }
    at += kRecordHeader + length;
  }
  return ClientHelloState::kIncomplete;
}

}  // namespace oarlock
