// Ranks as real processes: forked from the test (to call the engine's parts over a real Gloo group), or a trainer
// program started once per rank with the environment of the contract.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/contract.h"
#include "common/port_reservation.h"
#include "ddp/process_group.h"
#include "tests/support/program.h"

namespace oarlock::test {

// `length` consecutive ports for servers of a test; throws if there are none.
PortReservation reserve_ports(int length = 1);

// Forks `world_size` processes, connects them over loopback, and calls body(group) in each. The test fails if EXPECT or
// ASSERT fails in one of them, or if one throws. The parent must not have used LibTorch's threads before.
void run_ranks(int world_size, const std::function<void(const ProcessGroup& group)>& body);

struct TrainerOptions {
  std::string config;                              // text of the YAML file; `threads: 1` is added
  std::vector<std::string> arguments;              // after --config FILE
  std::map<std::string, std::string> environment;  // on top of the contract's; an empty value removes a variable
  std::filesystem::path directory;                 // working directory of the ranks, for the configuration's paths
  std::string program{};                           // empty: test_trainer()
};

// The ranks of one job, each with its termination log.
class TrainerRanks {
 public:
  TrainerRanks(int world_size, const TrainerOptions& options);

  Program& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  std::vector<int> wait();  // exit codes by rank
  TerminationMessage last_word(int rank) const;
  nlohmann::json log_line(int rank, const std::string& message) const;  // the last with this "msg"; empty: none
  int metrics_port(int rank) const;  // waits until it is served (--metrics-port auto)

 private:
  TemporaryDirectory logs_;
  PortReservation master_port_ = reserve_ports();
  std::vector<std::unique_ptr<Program>> ranks_;
};

// The program with the tests' tasks (tests/support/trainer_program).
std::string test_trainer();

// Body of GET http://127.0.0.1:port/path; "" if the connection fails.
std::string http_get(int port, const std::string& path);

}  // namespace oarlock::test
