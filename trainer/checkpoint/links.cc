#include "trainer/checkpoint/links.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace oarlock {

Result<void> set_link(const std::filesystem::path& root, const std::string& name, const std::string& target) {
  if (link_target(root, name) == target) return {};
  const std::filesystem::path temporary = root / fmt::format(".link-{}-{}", name, ::getpid());
  ::unlink(temporary.c_str());
  if (::symlink(target.c_str(), temporary.c_str()) != 0) {
    const int error = errno;
    const std::string what = fmt::format("{}: the link to {} cannot be made", (root / name).string(), target);
    if (error != EPERM && error != EOPNOTSUPP && error != ENOSYS) return fail_errno(error, what);
    return fail(ExitCode::kUnavailable, what + ": the file system has no symbolic links");
  }
  if (::rename(temporary.c_str(), (root / name).c_str()) == 0) return {};
  const int error = errno;
  ::unlink(temporary.c_str());
  return fail_errno(error, fmt::format("{}: the link to {} cannot be set", (root / name).string(), target));
}

std::optional<std::string> link_target(const std::filesystem::path& root, const std::string& name) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(root / name, error);
  if (error) return std::nullopt;
  return target.string();
}

}  // namespace oarlock
