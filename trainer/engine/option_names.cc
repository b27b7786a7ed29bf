#include "trainer/engine/option_names.h"

#include <array>
#include <string_view>
#include <utility>

namespace oarlock {
namespace {

// The remedies in the messages of ddp/.
constexpr std::array<std::pair<std::string_view, std::string_view>, 6> kRemedies = {{
    {"set comm_hook", "set ddp.comm_hook"},
    {"set find_unused_parameters", "set ddp.find_unused_parameters"},
    {"set static_graph", "set ddp.static_graph"},
    {"set sync_batch_norm", "set ddp.sync_batch_norm"},
    {"raise the timeout of the process group", "raise distributed.timeout_seconds"},
    {"raise the memory fraction of LibTorch's allocator", "raise cuda.memory_fraction"},
}};

}  // namespace

Error with_configuration_keys(Error error) {
  for (const auto& [remedy, with_key] : kRemedies) {
    const size_t at = error.message.find(remedy);
    if (at != std::string::npos) error.message.replace(at, remedy.size(), with_key);
  }
  return error;
}

}  // namespace oarlock
