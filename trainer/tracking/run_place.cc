#include "trainer/tracking/run_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <system_error>

#include "common/text.h"

namespace oarlock {

std::string place_of(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  struct stat status = {};
  if (error || ::stat(path.c_str(), &status) != 0) return "";
  return fmt::format("{} {}", status.st_ino, replace_invalid_utf8(path.string()));
}

bool is_copied(std::string_view earlier, std::string_view place) {
  const size_t earlier_space = earlier.find(' ');
  const size_t space = place.find(' ');
  if (earlier_space == std::string_view::npos || space == std::string_view::npos) return false;
  return earlier.substr(0, earlier_space) != place.substr(0, space) &&
         earlier.substr(earlier_space) != place.substr(space);
}

}  // namespace oarlock
