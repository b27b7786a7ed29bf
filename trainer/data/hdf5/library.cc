#include "trainer/data/hdf5/library.h"

#include <fmt/format.h>
#include <hdf5.h>

#include <cstdint>
#include <type_traits>

namespace oarlock {

static_assert(std::is_same_v<hid_t, int64_t> && std::is_same_v<herr_t, int>, "as handle.h and library.h have them");

Hdf5Quiet::Hdf5Quiet() {
  H5Eget_auto2(H5E_DEFAULT, &print_, &data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Quiet::~Hdf5Quiet() { H5Eset_auto2(H5E_DEFAULT, print_, data_); }

std::string hdf5_reason() {
  std::string reason;
  // The first one is the innermost: what went wrong, before what could not be done therefore.
  const auto take_first = [](unsigned /*depth*/, const H5E_error2_t* error, void* out) -> herr_t {
    if (error->desc != nullptr) *static_cast<std::string*>(out) = error->desc;
    return 1;
  };
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, take_first, &reason);
  return reason;
}

tl::unexpected<Error> hdf5_fail(const Hdf5Place& place, const std::string& what) {
  return fail(ExitCode::kDataErr, fmt::format("{}: {} {}", place.file, place.path, what));
}

tl::unexpected<Error> hdf5_call_failed(const Hdf5Place& place, const std::string& what) {
  const std::string reason = hdf5_reason();
  return hdf5_fail(place, fmt::format("{}{}{}; the file is truncated or damaged: fetch or write it again", what,
                                      reason.empty() ? "" : ": ", reason));
}

}  // namespace oarlock
