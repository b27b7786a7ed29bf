// oarlock install: copies this program into a directory.
#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "cli/command.h"
#include "common/files.h"
#include "common/status_macros.h"

namespace oarlock::cli {
namespace {

constexpr char kInstallDescription[] =
    "Copy this program to DIR/oarlock, which other users can execute. The operator runs this command in an init\n"
    "container, so that pods whose image does not contain the launcher have it (spec.launcher).";

constexpr char kInstallFooter[] = R"(
exit codes: 0; 66: DIR does not exist; 74: the program cannot be written completely; 77: DIR is not writable.

examples:
  oarlock install ~/.local/bin
)";

// Another process may execute the earlier program, or start the new one, at any time: the new one is complete when it
// has its name.
Result<int> install(const std::filesystem::path& directory) {
  ASSIGN_OR_RETURN(const std::string program, read_file("/proc/self/exe"));
  const std::filesystem::path temporary = directory / ".oarlock.new";
  const std::filesystem::path target = directory / "oarlock";
  {
    ASSIGN_OR_RETURN(const FileDescriptor file, create_new_file(temporary, 0700));
    if (const int error = write_all(file.get(), program); error != 0)
      return fail_errno(error, fmt::format("{} cannot be written", temporary.string()));
    if (::fchmod(file.get(), 0755) != 0)  // whatever the umask is
      return fail_errno(errno, fmt::format("the permissions of {} cannot be changed", temporary.string()));
  }
  if (std::rename(temporary.c_str(), target.c_str()) != 0)
    return fail_errno(errno, fmt::format("{} cannot be created", target.string()));
  return 0;
}

}  // namespace

void add_install(CLI::App& app, Chosen& chosen) {
  auto directory = std::make_shared<std::string>();
  CLI::App* install_app = app.add_subcommand("install", kInstallDescription);
  set_usage(*install_app, "oarlock install DIR");
  install_app->footer(kInstallFooter);
  install_app->add_option("directory", *directory, "an existing directory")->type_name("DIR")->required();
  install_app->callback([directory, &chosen] { chosen = [directory] { return install(*directory); }; });
}

}  // namespace oarlock::cli
