#include "recovery/launcher_channel.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <limits>
#include <utility>

#include "common/contract.h"
#include "common/number.h"

namespace oarlock {
namespace {

constexpr auto kStopPollInterval = std::chrono::milliseconds(50);

// Sends the whole text. The launcher always reads, so a blocking send takes a moment only.
bool send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const ssize_t put = ::send(socket, text.data(), text.size(), MSG_NOSIGNAL);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    text.remove_prefix(static_cast<size_t>(put));
  }
  return true;
}

}  // namespace

Result<std::unique_ptr<LauncherChannel>> LauncherChannel::open(const std::optional<std::string>& descriptor,
                                                               StandbyProcess standby) {
  if (!descriptor || descriptor->empty()) return nullptr;
  const int fd = parse_integer<int>(*descriptor).value_or(-1);
  struct stat file{};
  const bool is_socket = fd > 2 && ::fstat(fd, &file) == 0 && S_ISSOCK(file.st_mode);
  if (!is_socket) {
    return fail(ExitCode::kConfig, fmt::format("environment variable {}={} does not name a socket of the launcher; a "
                                               "program between the launcher and this one may have closed it",
                                               kEnvRegroupFd, *descriptor));
  }
  ::fcntl(fd, F_SETFD, FD_CLOEXEC);
  return std::make_unique<LauncherChannel>(FileDescriptor(fd), standby);
}

LauncherChannel::LauncherChannel(FileDescriptor socket, StandbyProcess standby)
    : socket_(std::move(socket)), standby_(standby), wake_(::eventfd(0, EFD_CLOEXEC)), thread_([this] { receive(); }) {}

LauncherChannel::~LauncherChannel() {
  const uint64_t one = 1;
  static_cast<void>(::write(wake_.get(), &one, sizeof one) == sizeof one);
  thread_.join();
}

void LauncherChannel::receive() {
  std::string received;
  std::array<char, 4096> buffer;
  for (;;) {
    std::array<pollfd, 2> fds{pollfd{socket_.get(), POLLIN, 0}, pollfd{wake_.get(), POLLIN, 0}};
    if (::poll(fds.data(), fds.size(), -1) < 0) continue;
    if (fds[1].revents != 0) return;
    const ssize_t got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0 || received.size() > recovery::kMaxLineLength) break;
    received.append(buffer.data(), static_cast<size_t>(got));
    for (size_t end; (end = received.find('\n')) != std::string::npos; received.erase(0, end + 1)) {
      if (const auto command = recovery::rank_command_from_json(std::string_view(received).substr(0, end)))
        handle(*command);
    }
  }
  const std::scoped_lock lock(mutex_);
  is_closed_ = true;
  changed_.notify_all();
}

void LauncherChannel::handle(const recovery::RankCommand& command) {
  using Kind = recovery::RankCommand::Kind;
  const std::scoped_lock lock(mutex_);
  switch (command.kind) {
    case Kind::kLeave:
      (command.is_growth ? growing_generation_ : left_generation_).store(command.generation, std::memory_order_relaxed);
      break;
    case Kind::kEnd:
      end_ = command.reason;
      left_generation_.store(std::numeric_limits<int64_t>::max(), std::memory_order_relaxed);
      break;
    case Kind::kAssign:
      assignment_ = Assignment{command.generation, command.rank,       command.world_size, command.donor,
                               command.step,       command.store_host, command.store_port, command.store_prefix};
      break;
  }
  changed_.notify_all();
}

Result<Assignment> LauncherChannel::regroup(int64_t generation, const RecoveryState& state, std::string_view reason,
                                            const StopFlag& stop) {
  recovery::JoinRequest request;
  request.generation = generation;
  request.step = state.completed_step;
  request.digest = state.digest;
  request.fence = state.fence;
  request.reason = reason;
  request.standby_process = standby_ == StandbyProcess::kYes ? ::getpid() : 0;
  std::unique_lock lock(mutex_);
  if (!end_ && !is_closed_ && !send_all(socket_.get(), to_json(request) + "\n")) is_closed_ = true;
  for (;;) {
    if (end_) return fail(ExitCode::kPeerLost, fmt::format("the group cannot recover: {}", *end_));
    if (assignment_ && assignment_->generation > generation) return *assignment_;
    if (is_closed_) return fail(ExitCode::kUnavailable, "the launcher has closed its connection to this rank");
    if (stop.is_raised()) {
      return fail(ExitCode::kTempFail, fmt::format("interrupted by signal {} while the ranks regroup after: {}",
                                                   stop.signal_number(), reason));
    }
    changed_.wait_for(lock, kStopPollInterval);
  }
}

}  // namespace oarlock
