#include "tests/support/program.h"
#include "tests/support/paths.h"

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
#include <utility>

namespace oarlock::test {
namespace {

constexpr auto kPatience = std::chrono::minutes(5);
constexpr auto kMaxPause = std::chrono::milliseconds(20);

const char* variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

}  // namespace

ProgramImage::ProgramImage(std::vector<std::string> argv, const std::vector<std::string>& variables)
    : words_(std::move(argv)) {
  for (const char* name : {"PATH", "HOME"}) entries_.push_back(std::string(name) + "=" + variable(name));
  if (std::getenv("TSAN_OPTIONS") != nullptr)
    entries_.push_back(std::string("TSAN_OPTIONS=") + variable("TSAN_OPTIONS"));
  entries_.insert(entries_.end(), variables.begin(), variables.end());
  for (std::string& word : words_) arguments_.push_back(word.data());
  arguments_.push_back(nullptr);
  for (std::string& entry : entries_) environment_.push_back(entry.data());
  environment_.push_back(nullptr);
}

void ProgramImage::execute(const std::filesystem::path& directory) const {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  for (const int number : {SIGINT, SIGQUIT}) ::signal(number, SIG_DFL);  // a shell ignores them in the background
  if (::chdir(directory.c_str()) == 0) ::execve(arguments_[0], arguments_.data(), environment_.data());
  ::_exit(99);
}

int wait_for_program(pid_t& pid, const std::function<std::string()>& output, const std::function<void()>& poll) {
  if (pid <= 0) {  // waitpid(2) would return the status of another child
    ADD_FAILURE() << "no program is running";
    return -1;
  }
  int status = 0;
  pid_t ended = 0;
  eventually([&] {
    if (poll) poll();
    ended = ::waitpid(pid, &status, WNOHANG);
    return ended != 0;
  });
  if (ended != pid) {
    ADD_FAILURE() << (ended == 0 ? "the program does not end; it wrote:\n" : "waitpid(2) failed; the program wrote:\n")
                  << output();
    return -1;
  }
  pid = -1;
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

Program::Program(std::vector<std::string> argv, const ProgramOptions& options)
    : directory_(options.directory.empty() ? own_.path() / "work" : options.directory) {
  std::filesystem::create_directories(directory_);
  std::vector<std::string> variables = {"TMPDIR=" + own_.path().string()};
  for (const auto& [name, value] : options.environment) variables.push_back(name + "=" + value);
  const ProgramImage image(std::move(argv), variables);
  const std::string out = (own_.path() / "out").string();
  const std::string err = (own_.path() / "err").string();

  pid_ = ::fork();
  if (pid_ == 0) {
    ::setpgid(0, 0);
    ::dup2(::open("/dev/null", O_RDONLY), 0);
    ::dup2(::open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 1);
    ::dup2(::open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600), 2);
    image.execute(directory_);
  }
}

Program::~Program() {
  if (pid_ < 0) return;
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

void Program::signal(int number) const {
  if (pid_ > 0) ::kill(pid_, number);
}

int Program::wait() {
  if (pid_ > 0) exit_code_ = wait_for_program(pid_, [this] { return out() + err(); });
  return exit_code_;
}

std::string Program::out() const { return content(own_.path() / "out"); }
std::string Program::err() const { return content(own_.path() / "err"); }

std::string oarlock() { return test::program_path("oarlock"); }

bool eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  // A condition may call the API server. Calls in quick succession would slow down the awaited work.
  for (auto pause = std::chrono::milliseconds(1); !condition(); pause = std::min(2 * pause, kMaxPause)) {
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
