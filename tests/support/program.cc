#include "tests/support/program.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace oarlock::test {
namespace {

constexpr auto kPatience = std::chrono::minutes(5);
constexpr auto kLongestPause = std::chrono::milliseconds(20);

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

Program::Program(std::vector<std::string> argv, const ProgramOptions& options)
    : folder_(options.folder.empty() ? own_.path() / "work" : options.folder) {
  std::filesystem::create_directories(folder_);
  std::vector<std::string> entries;
  for (const char* name : {"PATH", "HOME"}) entries.push_back(std::string(name) + "=" + variable(name));
  entries.push_back("TMPDIR=" + own_.path().string());
  for (const auto& [name, value] : options.environment) entries.push_back(name + "=" + value);
  std::vector<char*> arguments;
  for (std::string& word : argv) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<char*> environment;
  for (std::string& entry : entries) environment.push_back(entry.data());
  environment.push_back(nullptr);
  const std::string out = (own_.path() / "out").string();
  const std::string err = (own_.path() / "err").string();

  pid_ = ::fork();
  if (pid_ == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::setpgid(0, 0);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    if (::chdir(folder_.c_str()) == 0) ::execve(arguments[0], arguments.data(), environment.data());
    ::_exit(99);
  }
}

Program::~Program() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Program::signal(int number) const { ::kill(pid_, number); }

int Program::wait() {
  int status = 0;
  const bool ended = eventually([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; });
  if (!ended) {
    ADD_FAILURE() << "the program does not end; it wrote:\n" << out() << err();
    return -1;
  }
  pid_ = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

std::string Program::out() const { return content(own_.path() / "out"); }
std::string Program::err() const { return content(own_.path() / "err"); }

std::string oarlock() { return OARLOCK_BIN "/oarlock"; }

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  // A condition may call the API server. Calls in quick succession would slow down the awaited work.
  for (auto pause = std::chrono::milliseconds(1); !condition(); pause = std::min(2 * pause, kLongestPause)) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(pause);
  }
  return true;
}

std::string content(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

int number_in(const std::filesystem::path& file) {
  if (!eventually([&] { return content(file).ends_with('\n'); })) return -1;
  return std::stoi(content(file));
}

bool alive(pid_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  return line[line.rfind(')') + 2] != 'Z';
}

std::vector<std::string> lines(const std::string& text) {
  std::vector<std::string> result;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) result.push_back(line);
  return result;
}

}  // namespace oarlock::test
