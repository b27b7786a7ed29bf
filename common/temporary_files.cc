#include "common/temporary_files.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>

#include "common/files.h"
#include "common/random.h"

namespace oarlock {
namespace {

constexpr std::string_view kTemporary = ".tmp-";  // between the name of a file and the suffix of its temporary file

// Whether a file name is NAME.tmp-PID or NAME.tmp-PID-HEX.
bool is_temporary_name(std::string_view file, std::string_view name) {
  const size_t at = file.rfind(kTemporary);
  if (at == std::string_view::npos || at == 0 || (!name.empty() && file.substr(0, at) != name)) return false;
  const std::string_view suffix = file.substr(at + kTemporary.size());
  const size_t digits = std::min(suffix.find_first_not_of("0123456789"), suffix.size());
  const std::string_view rest = suffix.substr(digits);
  if (digits == 0 || rest.empty()) return digits > 0;
  return rest.front() == '-' && rest.find_first_not_of("0123456789abcdef", 1) == std::string_view::npos;
}

}  // namespace

std::filesystem::path new_temporary_path(const std::filesystem::path& path) {
  // Processes on two nodes may have the same number.
  return path.string() + fmt::format("{}{}-{}", kTemporary, ::getpid(), random_hex(4));
}

std::vector<std::filesystem::path> temporary_files(const std::filesystem::path& directory, std::string_view name) {
  std::vector<std::filesystem::path> out;
  visit_directory(directory, [&](const std::filesystem::path& path) {
    if (is_temporary_name(path.filename().string(), name)) out.push_back(path);
  });
  return out;
}

}  // namespace oarlock
