#include "tests/support/rank_harness.h"
#include "tests/support/paths.h"

#include <ATen/Parallel.h>
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <csignal>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "ddp/socket.h"

namespace oarlock::test {
namespace {

ProcessGroup connect(int rank, int world_size, const Listener& listener) {
  if (world_size == 1) return {};
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(listener.port);
  options.isServer = rank == 0;
  options.waitWorkers = false;
  if (rank == 0) options.masterListenFd = listener.descriptor;
  const auto store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  ProcessGroupOptions group;
  group.rank = rank;
  group.world_size = world_size;
  group.timeout = std::chrono::seconds(60);
  group.address = "127.0.0.1";
  return make_gloo_group(store, group);
}

[[noreturn]] void run_child(int rank, int world_size, const Listener& listener,
                            const std::function<void(const ProcessGroup&)>& body) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  at::set_num_threads(1);
  int status = 1;
  try {
    const ProcessGroup group = connect(rank, world_size, listener);
    body(group);
    group.barrier();
    status = ::testing::Test::HasFailure() ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "rank %d threw: %s\n", rank, error.what());
  }
  std::fflush(nullptr);
  ::_exit(status);
}

}  // namespace

PortReservation reserve_ports(int length) {
  Result<PortReservation> ports = PortReservation::make(length);
  if (!ports) throw std::runtime_error(ports.error().message);
  return std::move(*ports);
}

void run_ranks(int world_size, const std::function<void(const ProcessGroup&)>& body) {
  const Result<Listener> listener = listen_on(0);
  ASSERT_TRUE(listener) << listener.error().message;
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int rank = 0; rank < world_size; ++rank) {
    const pid_t child = ::fork();
    if (child == 0) run_child(rank, world_size, *listener, body);
    children.push_back(child);
  }
  ::close(listener->descriptor);
  for (int rank = 0; rank < world_size; ++rank) {
    int status = 0;
    ::waitpid(children[static_cast<size_t>(rank)], &status, 0);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0)
        << "rank " << rank << " of " << world_size << " failed: status " << status;
  }
}

TrainerRanks::TrainerRanks(int world_size, const TrainerOptions& options) {
  const std::filesystem::path config = logs_.path() / "trainer.yaml";
  // One thread: LibTorch's threads spin while they wait, and tests run concurrently.
  std::ofstream(config) << options.config << "\nthreads: 1\n";
  const std::string program_path = options.program.empty() ? test_trainer() : options.program;
  std::vector<std::string> argv = {program_path, "--config", config.string()};
  argv.insert(argv.end(), options.arguments.begin(), options.arguments.end());
  for (int rank = 0; rank < world_size; ++rank) {
    ProgramOptions program;
    program.directory = options.directory;
    program.environment[kEnvTerminationLog] = (logs_.path() / ("termination-" + std::to_string(rank))).string();
    if (world_size > 1) {
      program.environment[kEnvRank] = std::to_string(rank);
      program.environment[kEnvLocalRank] = std::to_string(rank);
      program.environment[kEnvWorldSize] = std::to_string(world_size);
      program.environment[kEnvLocalWorldSize] = std::to_string(world_size);
      program.environment[kEnvMasterAddr] = "127.0.0.1";
      program.environment[kEnvMasterPort] = std::to_string(master_port_.first());
    }
    for (const auto& [name, value] : options.environment) {
      program.environment[name] = value;
      if (value.empty()) program.environment.erase(name);
    }
    ranks_.push_back(std::make_unique<Program>(argv, program));
  }
}

std::vector<int> TrainerRanks::wait() {
  std::vector<int> codes;
  for (const auto& rank : ranks_) codes.push_back(rank->wait());
  return codes;
}

TerminationMessage TrainerRanks::last_word(int rank) const {
  const std::string text = content(logs_.path() / ("termination-" + std::to_string(rank)));
  const auto message = termination_message_from_json(text);
  EXPECT_TRUE(message) << "no termination message of rank " << rank << ": '" << text << "'";
  return message.value_or(TerminationMessage{});
}

nlohmann::json TrainerRanks::log_line(int rank, const std::string& message) const {
  nlohmann::json found = nlohmann::json::object();
  for (const std::string& line : lines(ranks_[static_cast<size_t>(rank)]->err())) {
    const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
    if (json.is_object() && json.value("msg", "") == message) found = json;
  }
  return found;
}

int TrainerRanks::metrics_port(int rank) const {
  nlohmann::json line;
  EXPECT_TRUE(eventually([&] { return !(line = log_line(rank, "metrics are served")).empty(); }));
  return line.empty() ? 0 : line["port"].get<int>();
}

std::string test_trainer() { return test::program_path("oarlock-test-trainer"); }

std::string http_get(int port, const std::string& path) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  std::string answer;
  if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) {
    const std::string request = "GET " + path + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    char buffer[4096];
    for (ssize_t got = 0; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;)
      answer.append(buffer, static_cast<size_t>(got));
  }
  ::close(fd);
  const size_t body = answer.find("\r\n\r\n");
  return answer.starts_with("HTTP/1.1 200") && body != std::string::npos ? answer.substr(body + 4) : "";
}

}  // namespace oarlock::test
