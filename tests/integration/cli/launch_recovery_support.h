// Launchers of programs that regroup, on one node and on two.
#pragma once

#include <cstdio>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/port_reservation.h"
#include "tests/support/program.h"

namespace oarlock::test {

// A rank that regroups, as a program without LibTorch: it "trains" 5 steps in generation 0, and rank 1 fails there in
// the way that the argument names. In generation 1, all report the donor and end.
inline constexpr char kRank[] = R"(
import json, os, signal, socket, sys, time
rank, how = int(os.environ["RANK"]), sys.argv[1]
channel = socket.socket(fileno=int(os.environ["OARLOCK_REGROUP_FD"]))
lines = channel.makefile("r")
def commands():
    for line in lines:
        yield json.loads(line)
    sys.exit(1)
def regroup(generation, step):
    request = {"generation": generation, "step": step, "digest": "", "reason": "test"}
    channel.sendall((json.dumps(request) + "\n").encode())
    for command in commands():
        if command["kind"] == "end":
            sys.exit(76)
        if command["kind"] == "assign" and command["generation"] > generation:
            return command
group = regroup(-1, -1)
with open(f"pid.{rank}", "w") as file:
    file.write(f"{os.getpid()}\n")
while group["generation"] == 0:
    if rank == 1:
        if how == "kill": os.kill(os.getpid(), signal.SIGKILL)
        if how == "stop": os.kill(os.getpid(), signal.SIGSTOP)
        if how == "config": sys.exit(78)
        if how == "fail": sys.exit(1)
    if how == "stop":
        group = regroup(0, 5)  # a collective timed out
    for command in commands() if group["generation"] == 0 else []:
        if command["kind"] == "leave" and command["generation"] == 0:
            group = regroup(0, 5)
            break
        if command["kind"] == "end":
            sys.exit(76)
print(f"rank {group['rank']} of {group['worldSize']}, donor {group['donor']}, step {group['step']}", flush=True)
)";

// The standard output of a shell command.
inline std::string output_of(const std::string& command) {
  std::string out;
  FILE* pipe = ::popen(command.c_str(), "r");
  for (int byte; (byte = std::fgetc(pipe)) != EOF;) out.push_back(static_cast<char>(byte));
  ::pclose(pipe);
  return out;
}

inline std::vector<std::string> launch(std::vector<std::string> options, std::vector<std::string> command) {
  std::vector<std::string> argv = {oarlock(), "launch"};
  argv.insert(argv.end(), options.begin(), options.end());
  argv.emplace_back("--");
  argv.insert(argv.end(), command.begin(), command.end());
  return argv;
}

inline std::vector<std::string> rank_program(const std::string& how) { return {"python3", "-c", kRank, how}; }
inline const std::vector<std::string> kByRank = {"--nproc",          "3",    "--max-restarts", "2",
                                                 "--restart-policy", "rank", "--no-prefix"};
// Two launchers on this machine, as two nodes. They share a working directory.
class TwoNodes : public testing::Test {
 protected:
  Program start(int node, std::vector<std::string> options, const std::vector<std::string>& command,
                const std::string& token) {
    return start(node, std::move(options), command,
                 std::map<std::string, std::string>{{"OARLOCK_REGROUP_TOKEN", token}});
  }
  Program start(int node, std::vector<std::string> options, const std::vector<std::string>& command,
                const std::map<std::string, std::string>& environment) {
    options.insert(options.end(), {"--nnodes", "2", "--node-rank", std::to_string(node), "--master-addr", "127.0.0.1",
                                   "--master-port", std::to_string(ports_.first()), "--no-prefix"});
    return Program(launch(options, command), {.environment = environment, .directory = directory_.path()});
  }

  TemporaryDirectory directory_;
  PortReservation ports_ = PortReservation::make(2).value();  // of the store, and of the coordinator
};

}  // namespace oarlock::test
