// The head of a request. Byte 0 is the size of the pieces in which the rest arrives: whether it is accepted, and what
// is read from it, must not depend on them.
#include "http/request_head.h"

#include "tests/fuzz/input.h"

using namespace oarlock;

namespace {

using Outcome = std::optional<tl::expected<HttpRequest, HttpResponse>>;

Outcome read_head(std::string_view bytes, size_t piece, const HttpLimits& limits) {
  RequestHeadReader reader(limits);
  for (size_t begin = 0; begin < bytes.size(); begin += piece) {
    if (Outcome outcome = reader.add(bytes.substr(begin, piece))) return outcome;
  }
  return std::nullopt;
}

void require_valid(const HttpRequest& request, const HttpLimits& limits) {
  for (const std::string& text : {request.path, request.query, request.authorization})
    fuzz::require(text.find_first_of("\r\n") == std::string::npos);
  fuzz::require(request.path.size() + request.query.size() <= limits.request_line_bytes);
  fuzz::require(request.authorization.size() <= limits.head_bytes);
  fuzz::require(request.path.find('?') == std::string::npos);
  fuzz::require(request.body.size() == request.body_bytes && request.body.size() <= limits.post_bytes);
  fuzz::require(request.is_post || request.body.empty());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = fuzz::text_of(data + 1, size - 1);
  for (const HttpLimits& limits :
       {HttpLimits{},
        HttpLimits{.request_line_bytes = 32, .head_bytes = 128, .fields = 4, .body_bytes = 8, .post_bytes = 16}}) {
    const Outcome whole = read_head(bytes, bytes.size() + 1, limits);
    const Outcome pieces = read_head(bytes, size_t{1} + data[0], limits);
    fuzz::require(whole.has_value() == pieces.has_value());
    if (!whole) {
      fuzz::require(bytes.size() <= limits.head_bytes + limits.post_bytes);  // what is held of an incomplete request
      continue;
    }
    fuzz::require(whole->has_value() == pieces->has_value());
    if (whole->has_value()) {
      require_valid(**whole, limits);
      fuzz::require((*whole)->path == (*pieces)->path && (*whole)->query == (*pieces)->query &&
                    (*whole)->authorization == (*pieces)->authorization && (*whole)->is_head == (*pieces)->is_head &&
                    (*whole)->body == (*pieces)->body);
    } else {
      fuzz::require(whole->error().status >= 400 && whole->error().status <= 505);
    }
  }
  return 0;
}
