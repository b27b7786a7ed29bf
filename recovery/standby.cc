#include "recovery/standby.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "common/contract.h"
#include "common/files.h"
#include "common/number.h"
#include "common/status_macros.h"

namespace oarlock::recovery {
namespace {

constexpr char kEnvironmentFile[] = "oarlock-environment";
constexpr off_t kMaxEnvironment = off_t{64} << 20;  // more than execve(2) accepts

// The descriptors of a message, in this order; the last one is optional.
enum : size_t { kEnvironment, kOut, kErr, kRegroup, kDescriptors };

// A message of one byte with descriptors.
struct Message {
  explicit Message(size_t descriptors) {
    header.msg_iov = &vector;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors * sizeof(int));
  }

  char byte = 's';
  iovec vector{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kDescriptors * sizeof(int))> control{};
  msghdr header{};
};

Result<FileDescriptor> environment_file(const std::map<std::string, std::string>& environment) {
  std::string text;
  for (const auto& [name, value] : environment) text.append(name).append("=").append(value).push_back('\0');
  return create_memory_file(kEnvironmentFile, text);
}

// Reads the whole file; "" if that fails.
std::string text_of(int file) {
  struct stat status{};
  if (::fstat(file, &status) != 0 || status.st_size > kMaxEnvironment) return "";
  std::string text(static_cast<size_t>(status.st_size), '\0');
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t got = ::pread(file, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return "";
    done += static_cast<size_t>(got);
  }
  return text;
}

// Returns the descriptors of the next message; nullopt if the connection ends.
std::optional<std::vector<FileDescriptor>> receive(int socket) {
  Message message(kDescriptors);
  ssize_t got = 0;
  do {
    got = ::recvmsg(socket, &message.header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  std::vector<FileDescriptor> out;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message.header); part != nullptr; part = CMSG_NXTHDR(&message.header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    for (size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
      out.emplace_back(fd);
    }
  }
  return out;
}

[[noreturn]] void end(ExitCode code) { ::_exit(to_int(code)); }  // nothing has happened yet that needs destructors

void replace_environment(const std::string& text) {
  ::clearenv();
  for (size_t at = 0; at < text.size();) {
    const std::string entry = text.c_str() + at;
    at += entry.size() + 1;
    const size_t equals = entry.find('=');
    if (equals != std::string::npos) ::setenv(entry.substr(0, equals).c_str(), entry.c_str() + equals + 1, 1);
  }
}

}  // namespace

Result<void> send_start(int socket, const RankStart& start) {
  ASSIGN_OR_RETURN(const FileDescriptor file, environment_file(start.environment));
  const size_t count = start.regroup < 0 ? kRegroup : kDescriptors;
  const std::array<int, kDescriptors> descriptors{file.get(), start.out, start.err, start.regroup};
  Message message(count);
  cmsghdr* part = CMSG_FIRSTHDR(&message.header);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(count * sizeof(int));
  std::memcpy(CMSG_DATA(part), descriptors.data(), count * sizeof(int));
  if (::sendmsg(socket, &message.header, MSG_DONTWAIT | MSG_NOSIGNAL) != 1)
    return fail_errno(errno, "the standby process does not receive");
  return {};
}

void wait_for_start() {
  const char* number = std::getenv(kEnvStandbyFd);
  if (number == nullptr) return;
  const int fd = parse_integer<int>(number).value_or(-1);
  struct stat status{};
  if (fd <= STDERR_FILENO || ::fstat(fd, &status) != 0 || !S_ISSOCK(status.st_mode)) {  // not set by a launcher
    ::unsetenv(kEnvStandbyFd);
    return;
  }
  const FileDescriptor socket(fd);
  std::optional<std::vector<FileDescriptor>> message = receive(socket.get());
  if (!message) end(ExitCode::kOk);
  std::vector<FileDescriptor>& received = *message;
  const std::string environment = received.size() < kRegroup ? "" : text_of(received[kEnvironment].get());
  if (environment.empty() || ::dup2(received[kOut].get(), STDOUT_FILENO) < 0 ||
      ::dup2(received[kErr].get(), STDERR_FILENO) < 0) {
    end(ExitCode::kFailure);  // the launcher starts the rank again, without this process
  }
  replace_environment(environment);
  if (received.size() > kRegroup) ::setenv(kEnvRegroupFd, std::to_string(received[kRegroup].release()).c_str(), 1);
  received[kEnvironment].release();  // stays open, for /proc
}

}  // namespace oarlock::recovery
