// A page of a list. Byte 0: the kind of the objects; byte 1: the size of the pieces in which the rest arrives. The
// result must not depend on the pieces.
#include "kube/client/list_watch.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/reflector_target.h"

using namespace oarlock;

namespace {

std::string read_list(std::string_view bytes, fuzz::ObjectKind kind, size_t piece) {
  const kube::ObjectFilters filters = fuzz::object_filters(kind);
  fuzz::RecordingTarget target(kind);
  kube::ListSink sink(filters, target, target);
  fuzz::feed(sink, bytes, piece);
  static const kube::FieldFilter envelope({"metadata.continue", "metadata.resourceVersion"});
  std::string version;
  if (sink.splitter().complete()) {
    if (const auto parsed = envelope.parse(sink.splitter().envelope())) version = kube::version_of(*parsed);
  }
  return target.calls() + sink.problem() + version;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  const fuzz::ObjectKind kind = fuzz::kind_of(data[0]);
  fuzz::require(read_list(bytes, kind, bytes.size() + 1) == read_list(bytes, kind, size_t{1} + data[1]));
  return 0;
}
