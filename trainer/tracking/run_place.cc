#include "trainer/tracking/run_place.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <string_view>
#include <system_error>

#include "trainer/tracking/utf8.h"

namespace oarlock {

std::string place_of(const std::filesystem::path& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(folder, error);
  struct stat status = {};
  if (error || ::stat(path.c_str(), &status) != 0) return "";
  return fmt::format("{} {}", status.st_ino, replace_invalid_utf8(path.string()));
}

bool is_copied(const RunPlace& earlier, const RunPlace& place) {
  const std::string_view earlier_folder = earlier.folder;
  const std::string_view folder = place.folder;
  const size_t earlier_space = earlier_folder.find(' ');
  const size_t space = folder.find(' ');
  if (earlier_space == std::string_view::npos || space == std::string_view::npos) return false;
  if (earlier_folder.substr(0, earlier_space) == folder.substr(0, space)) return false;
  const bool is_of_another_job = !earlier.uid.empty() && !place.uid.empty() && earlier.uid != place.uid;
  return is_of_another_job || earlier_folder.substr(earlier_space) != folder.substr(space);
}

}  // namespace oarlock
