// The bytes of a watch. Byte 0: the kind of the objects, and whether the watch begins with initial events; byte 1: the
// size of the pieces in which the rest arrives. The result must not depend on the pieces.
#include "kube/client/list_watch.h"
#include "tests/fuzz/input.h"
#include "tests/fuzz/reflector_target.h"

using namespace oarlock;

namespace {

std::string read_watch(std::string_view bytes, uint8_t selector, size_t piece) {
  const fuzz::ObjectKind kind = fuzz::kind_of(selector);
  const bool initial = selector >= 128;
  const kube::ObjectFilters filters = kube::event_filters(fuzz::object_filters(kind));
  fuzz::RecordingTarget target(kind);
  std::string last_version = "1";
  kube::WatchSink sink(filters, target, target, last_version, initial);
  fuzz::feed(sink, bytes, piece);
  return target.calls() + last_version + (sink.problem() ? sink.problem()->message : "") +
         std::to_string(sink.events()) + (sink.committed() ? "committed" : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view bytes = fuzz::text_of(data + 2, size - 2);
  fuzz::require(read_watch(bytes, data[0], bytes.size() + 1) == read_watch(bytes, data[0], size_t{1} + data[1]));
  return 0;
}
