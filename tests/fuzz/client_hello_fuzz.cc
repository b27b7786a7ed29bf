// The first bytes of a TLS client. Byte 0 is the size of the pieces in which the rest arrives: up to the limit, the
// state that ends the inspection of a piece is that of all bytes. Then the rest is a handshake message, whose state
// must not depend on the records into which it is split.
#include <algorithm>
#include <string>

#include "http/request_head.h"
#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

constexpr size_t kLimits[] = {64, 2048};
constexpr size_t kNoLimit = 1 << 20;
constexpr size_t kMaxRecord = 1 << 14;

void require_same_for_pieces(std::string_view bytes, size_t piece, size_t limit) {
  const ClientHelloState whole = inspect_client_hello(bytes, limit);
  if (bytes.size() > limit) {
    fuzz::require(whole == ClientHelloState::kInvalid);
    bytes = bytes.substr(0, limit);
  }
  const ClientHelloState within_limit = inspect_client_hello(bytes, limit);
  for (size_t end = 0; end < bytes.size(); end += piece) {
    const ClientHelloState state = inspect_client_hello(bytes.substr(0, end), limit);
    fuzz::require(state == ClientHelloState::kIncomplete || state == within_limit);
  }
}

std::string in_records(std::string_view message, size_t size) {
  std::string out;
  for (; !message.empty(); message.remove_prefix(std::min(size, message.size()))) {
    const std::string_view part = message.substr(0, size);
    out += {22, 3, 1, static_cast<char>(part.size() >> 8), static_cast<char>(part.size())};
    out += part;
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  const size_t piece = size_t{1} + data[0];
  for (const size_t limit : kLimits) require_same_for_pieces(bytes, piece, limit);
  fuzz::require(inspect_client_hello(in_records(bytes, piece), kNoLimit) ==
                inspect_client_hello(in_records(bytes, kMaxRecord), kNoLimit));
  return 0;
}
