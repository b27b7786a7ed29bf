#include "trainer/checkpoint/links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "common/files.h"

namespace oarlock {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestName = 255;

bool has_no_links(int error) { return error == EPERM || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL; }

}  // namespace

Result<void> set_link(const fs::path& root, const std::string& name, const std::string& target) {
  if (link_target(root, name) == target) return {};
  const fs::path temporary = root / fmt::format(".link-{}-{}", name, ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    const int error = errno;
    if (!has_no_links(error))
      return fail_errno(error, fmt::format("{}: the link to {} cannot be made", (root / name).string(), target));
    if (auto written = write_file_atomically(temporary, target + "\n"); !written) return written;
  }
  if (::rename(temporary.c_str(), (root / name).c_str()) == 0) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return fail_errno(error, fmt::format("{}: the link to {} cannot be set", (root / name).string(), target));
}

std::optional<std::string> link_target(const fs::path& root, const std::string& name) {
  std::error_code error;
  const fs::path target = fs::read_symlink(root / name, error);
  if (!error) return target.string();
  if (!fs::is_regular_file(root / name, error) || fs::file_size(root / name, error) > kLongestName + 1)
    return std::nullopt;
  auto content = read_file(root / name);
  if (!content || !content->ends_with('\n')) return std::nullopt;
  content->pop_back();
  const bool plain = content->starts_with("step-") && std::all_of(content->begin(), content->end(), [](char c) {
                       return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
                     });
  return plain ? std::optional(*content) : std::nullopt;
}

}  // namespace oarlock
