#include "recovery/standby.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <string>

#include "common/contract.h"
#include "common/files.h"

namespace oarlock::recovery {
namespace {

struct Ends {
  FileDescriptor own;
  FileDescriptor other;
};

Ends socket_pair() {
  int ends[2];
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

Ends make_pipe() {  // own: the reading end
  int ends[2];
  EXPECT_EQ(::pipe(ends), 0);
  return {FileDescriptor(ends[0]), FileDescriptor(ends[1])};
}

std::string read_all(int fd) {
  std::string out;
  std::array<char, 4096> buffer;
  for (ssize_t got; (got = ::read(fd, buffer.data(), buffer.size())) > 0;)
    out.append(buffer.data(), static_cast<size_t>(got));
  return out;
}

// A process that waits to become a rank, and then calls `rank`, whose result is its exit code.
class StandbyProcess {
 public:
  explicit StandbyProcess(const std::function<int()>& rank) {
    Ends ends = socket_pair();
    pid_ = ::fork();
    if (pid_ == 0) {
      ends.own.close();
      ::setenv(kEnvStandbyFd, std::to_string(ends.other.get()).c_str(), 1);
      ::setenv("ONLY_OF_THE_STANDBY", "1", 1);
      wait_for_start();
      ::_exit(rank());
    }
    socket_ = std::move(ends.own);
  }
  ~StandbyProcess() {
    socket_.close();
    if (pid_ > 0) ::waitpid(pid_, nullptr, 0);
  }
  StandbyProcess(const StandbyProcess&) = delete;
  StandbyProcess& operator=(const StandbyProcess&) = delete;

  int socket() const { return socket_.get(); }
  void close() { socket_.close(); }
  int exit_code() {
    int status = 0;
    EXPECT_EQ(::waitpid(pid_, &status, 0), pid_);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  FileDescriptor socket_;
  pid_t pid_ = -1;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "(not set)" : value;
}

TEST(Standby, TakesOverTheEnvironmentAndTheDescriptors) {
  StandbyProcess standby([] {
    const std::string text = fmt::format("{} {} {} {}", variable("RANK"), variable("ONLY_OF_THE_STANDBY"),
                                         variable(kEnvStandbyFd), variable("LARGE").size());
    const bool written = ::write(STDOUT_FILENO, text.data(), text.size()) == static_cast<ssize_t>(text.size()) &&
                         ::write(STDERR_FILENO, "an error", 8) == 8;
    const int regroup = std::atoi(variable(kEnvRegroupFd).c_str());
    return written && ::write(regroup, "joins", 5) == 5 ? 0 : 1;
  });
  Ends out = make_pipe();
  Ends err = make_pipe();
  Ends regroup = socket_pair();
  const Result<void> sent = send_start(
      standby.socket(),
      {.environment = {{"RANK", "3"}, {"EMPTY", ""}, {"LARGE", std::string(1 << 20, 'x')}, {kEnvRegroupFd, "12345"}},
       .out = out.other.get(),
       .err = err.other.get(),
       .regroup = regroup.other.get()});
  ASSERT_TRUE(sent) << sent.error().message;
  out.other.close();
  err.other.close();
  regroup.other.close();
  EXPECT_EQ(read_all(out.own.get()), "3 (not set) (not set) 1048576");
  EXPECT_EQ(read_all(err.own.get()), "an error");
  EXPECT_EQ(read_all(regroup.own.get()), "joins");
  EXPECT_EQ(standby.exit_code(), 0);
}

TEST(Standby, WithoutAConnectionToRegroupTheVariableIsThatOfTheRank) {
  StandbyProcess standby([] { return variable(kEnvRegroupFd) == "(not set)" && variable("RANK") == "0" ? 0 : 1; });
  ASSERT_TRUE(send_start(standby.socket(), {.environment = {{"RANK", "0"}}, .out = 1, .err = 2}));
  EXPECT_EQ(standby.exit_code(), 0);
}

TEST(Standby, EndsWithTheLauncher) {
  StandbyProcess standby([] { return 99; });
  standby.close();
  EXPECT_EQ(standby.exit_code(), 0);
}

TEST(Standby, AnInvalidMessageEndsItWithoutBecomingARank) {
  StandbyProcess standby([] { return 99; });
  ASSERT_EQ(::send(standby.socket(), "x", 1, MSG_NOSIGNAL), 1);
  EXPECT_EQ(standby.exit_code(), to_int(ExitCode::kFailure));
}

TEST(Standby, SendingToAnEndedProcessFails) {
  Ends ends = socket_pair();
  ends.other.close();
  EXPECT_FALSE(send_start(ends.own.get(), {.environment = {{"RANK", "0"}}, .out = 1, .err = 2}));
}

// Nothing may block the launcher.
TEST(Standby, SendingToAProcessThatDoesNotReceiveFails) {
  const Ends ends = socket_pair();
  const std::string block(4096, 'x');
  while (::send(ends.own.get(), block.data(), block.size(), MSG_DONTWAIT) > 0) {
  }
  EXPECT_FALSE(send_start(ends.own.get(), {.environment = {{"RANK", "0"}}, .out = 1, .err = 2}));
}

TEST(Standby, AVariableThatNamesNoSocketIsIgnored) {
  const Ends pipe = make_pipe();
  for (const std::string& value : {std::to_string(pipe.own.get()), std::string("9999"), std::string("x")}) {
    ::setenv(kEnvStandbyFd, value.c_str(), 1);
    wait_for_start();
    EXPECT_EQ(variable(kEnvStandbyFd), "(not set)") << value;
  }
  EXPECT_GE(::fcntl(pipe.own.get(), F_GETFD), 0) << "the descriptor of another owner was closed";
}

}  // namespace
}  // namespace oarlock::recovery
