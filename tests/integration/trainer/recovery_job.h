// A job of the tiny task whose ranks regroup: the test takes the part of their launchers.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/integration/trainer/run_support.h"
#include "tests/support/trainer_program/file_channel.h"
#include "trainer/checkpoint/directory.h"
#include "trainer/checkpoint/manifest.h"

namespace oarlock::test {

namespace fs = std::filesystem;
inline constexpr auto kLimit = std::chrono::seconds(120);  // of one run

// Dropout, BatchNorm, AdamW, moving average, two micro-batches per step, clipping, a schedule with state, evaluations
// that choose the best checkpoint, and saves: everything that has state.
inline constexpr char kConfig[] =
    "task: tiny\nsteps: 60\nbatch: {size: 16}\ndata: {samples: 208, eval_samples: 33}\n"
    "optimizer: {name: adamw, lr: 0.003}\nema: {enabled: true, decay: 0.9}\n"
    "gradient: {accumulation_steps: 2, clip_norm: 1.0}\n"
    "schedule: {name: plateau, plateau: {patience: 1}}\n"
    "eval: {every_steps: 7}\ncheckpoint: {every_steps: 10, keep: 0}\nlog: {every_steps: 5}\nseed: 3\nthreads: 1\n";

// Starts the ranks, replaces those that are killed, and answers their requests, as a launcher does.
class Job {
 public:
  // With `ranks_per_node`, the ranks have the environment of several nodes; 0: of one node.
  Job(int world_size, const std::string& config, const std::string& overrides = "", bool with_channel = true,
      int ranks_per_node = 0, const fs::path& checkpoints = {})
      : world_size_(world_size),
        ranks_per_node_(ranks_per_node > 0 ? ranks_per_node : world_size),
        with_channel_(with_channel),
        pending_(static_cast<size_t>(world_size)) {
    checkpoints_ = checkpoints.empty() ? directory_.path() / "checkpoints" : checkpoints;
    std::ofstream(directory_.path() / "trainer.yaml") << config << overrides;
    fs::create_directory(channel());
    for (int rank = 0; rank < world_size; ++rank) ranks_.push_back(start(rank));
  }

  fs::path checkpoints() const { return checkpoints_; }
  fs::path once() const { return directory_.path() / "once"; }
  // From now on, these ranks are not replaced when they are killed: the others continue without them.
  void do_not_replace(const std::set<int>& ranks) { not_replaced_ = ranks; }
  // Forms no further group after this many, so that the ranks wait for it.
  void limit_groups(int64_t groups) { group_limit_ = groups; }
  // Starts a rank that was not replaced.
  void bring_back(int rank) {
    absent_.erase(rank);
    not_replaced_.erase(rank);
    ranks_[static_cast<size_t>(rank)] = start(rank);
  }
  // Replaces a rank that remains alive, as on a node that is cut off.
  std::unique_ptr<Program> cut_off(int rank) {
    pending_[static_cast<size_t>(rank)].reset();
    if (generation_ >= 0) std::ofstream(channel() / fmt::format("left-{}", generation_));
    return std::exchange(ranks_[static_cast<size_t>(rank)], start(rank));
  }
  bool is_absent(int rank) const { return absent_.contains(rank); }
  bool is_waiting(int rank) const { return pending_[static_cast<size_t>(rank)].has_value(); }
  int recoveries() const { return static_cast<int>(generation_); }
  int starts() const { return starts_; }
  Program& rank(int rank) { return *ranks_[static_cast<size_t>(rank)]; }
  std::vector<double> outages() const { return outages_; }

  // Returns whether all ranks succeeded. Calls `disturb` about every five milliseconds.
  bool run(const std::function<void(Job&)>& disturb = {}) {
    const auto end = std::chrono::steady_clock::now() + kLimit;
    for (;;) {
      if (disturb) disturb(*this);
      replace_killed();
      answer();
      if (!is_any_alive()) {
        replace_killed();  // those that have ended since the last call
        if (!is_any_alive()) break;
      }
      if (std::chrono::steady_clock::now() > end) {
        ADD_FAILURE() << "the run has not ended\n" << all_logs();
        return false;
      }
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    bool succeeded = true;
    for (int rank = 0; rank < world_size_; ++rank)
      succeeded = (absent_.contains(rank) || ranks_[static_cast<size_t>(rank)]->wait() == 0) && succeeded;
    return succeeded;
  }

  // Returns whether a checkpoint is being written, or the second one is complete already.
  bool is_saving() const {
    int saved = 0;
    std::error_code ignored;
    for (fs::directory_iterator entry(checkpoints(), ignored), end; !ignored && entry != end;
         entry.increment(ignored)) {
      const std::string name = entry->path().filename().string();
      if (name.starts_with(".writing-")) return true;
      if (name.starts_with("step-")) ++saved;
    }
    return saved >= 2;
  }

  // Returns whether all ranks but this one have left the group.
  bool others_have_left(int rank) const {
    for (int other = 0; other < world_size_; ++other)
      if (other != rank && !pending_[static_cast<size_t>(other)]) return false;
    return true;
  }

  std::string bits() const { return bits_of(checkpoints() / "last"); }

  std::string all_logs() const {
    std::string out;
    for (const std::string& text : old_logs_) out += text + "--- replaced ---\n";
    for (int rank = 0; rank < world_size_; ++rank)
      out += fmt::format("--- rank {} ---\n{}", rank, ranks_[static_cast<size_t>(rank)]->err());
    return out;
  }

  // The log lines of all recoveries.
  std::vector<nlohmann::json> recovery_lines() const {
    return lines_of("recovered from the loss of a rank without a checkpoint");
  }
  std::vector<nlohmann::json> lines_of(const std::string& message) const {
    std::vector<nlohmann::json> out;
    for (const std::string& line : lines(all_logs())) {
      const nlohmann::json json = nlohmann::json::parse(line, nullptr, false);
      if (json.is_object() && json.value("msg", "") == message) out.push_back(json);
    }
    return out;
  }

 private:
  struct Request {
    std::string id;
    int64_t generation = -1;
    int64_t step = -1;
    std::string digest;
  };

  bool is_any_alive() const {
    return std::any_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return alive(rank->pid()); });
  }
  fs::path channel() const { return directory_.path() / "channel"; }

  std::unique_ptr<Program> start(int rank) {
    ++starts_;
    ProgramOptions options;
    options.environment = {{kEnvRank, std::to_string(rank)},
                           {kEnvLocalRank, std::to_string(rank % ranks_per_node_)},
                           {kEnvWorldSize, std::to_string(world_size_)},
                           {kEnvLocalWorldSize, std::to_string(ranks_per_node_)},
                           {kEnvMasterAddr, "127.0.0.1"},
                           {kEnvMasterPort, std::to_string(port_.first())},
                           {"OARLOCK_UID", "job"},
                           {kEnvTerminationLog, (directory_.path() / fmt::format("termination-{}", rank)).string()}};
    if (with_channel_) options.environment[kEnvRegroupDirectory] = channel().string();
    return std::make_unique<Program>(
        std::vector<std::string>{test_trainer(), "--config", (directory_.path() / "trainer.yaml").string(),
                                 "--checkpoint-dir", checkpoints().string(), "--metrics-port", "auto",
                                 fmt::format("model.fault.once={}", once().string())},
        options);
  }

  void replace_killed() {
    for (int rank = 0; rank < world_size_; ++rank) {
      auto& program = ranks_[static_cast<size_t>(rank)];
      if (alive(program->pid()) || done_.contains(rank) || absent_.contains(rank)) continue;
      const int code = program->wait();
      if (code != 128 + SIGKILL && code != to_int(ExitCode::kPeerLost)) {
        done_.insert(rank);
        continue;
      }
      if (!lost_since_) lost_since_ = std::chrono::steady_clock::now();
      old_logs_.push_back(program->err());
      pending_[static_cast<size_t>(rank)].reset();
      if (generation_ >= 0) std::ofstream(channel() / fmt::format("left-{}", generation_));
      if (not_replaced_.contains(rank)) {
        absent_.insert(rank);
      } else {
        program = start(rank);
      }
    }
  }

  void answer() {
    for (const auto& entry : fs::directory_iterator(channel())) {
      const std::string name = entry.path().filename().string();
      if (!name.starts_with("request-") || name.find(".tmp") != std::string::npos || !seen_.insert(name).second)
        continue;
      const nlohmann::json json = nlohmann::json::parse(content(entry.path()));
      const int rank = json.at("rank");
      const std::string id = name.substr(std::string("request-").size());
      const std::string pid = std::to_string(ranks_[static_cast<size_t>(rank)]->pid());
      if (id.find("-" + pid + "-") == std::string::npos) continue;  // of a process that was killed
      pending_[static_cast<size_t>(rank)] = Request{id, json.at("generation"), json.at("step"), json.at("digest")};
      if (json.at("generation") >= 0)
        std::ofstream(channel() / fmt::format("left-{}", json.at("generation").get<int64_t>()));
    }
    if (generation_ + 1 >= group_limit_) return;
    std::vector<int> members;  // in the order of their ranks in the group
    for (int rank = 0; rank < world_size_; ++rank) {
      if (absent_.contains(rank)) continue;
      if (!pending_[static_cast<size_t>(rank)]) {
        // A rank that waits for the others joins their group.
        const bool waits = std::any_of(pending_.begin(), pending_.end(),
                                       [](const auto& request) { return request && request->generation < 0; });
        if (waits && generation_ >= 0) std::ofstream(channel() / fmt::format("growing-{}", generation_));
        return;
      }
      members.push_back(rank);
    }
    ++generation_;
    int donor = -1;
    int64_t step = -1;
    for (size_t i = 0; i < members.size(); ++i) {
      const Request& request = *pending_[static_cast<size_t>(members[i])];
      if (request.step <= step) continue;
      donor = static_cast<int>(i);
      step = request.step;
    }
    for (const int rank : members) {
      const Request& request = *pending_[static_cast<size_t>(rank)];
      if (step < 0 || request.step != step) continue;
      EXPECT_EQ(request.digest, pending_[static_cast<size_t>(members[static_cast<size_t>(donor)])]->digest)
          << "at step " << step;
    }
    store_ports_.push_back(reserve_ports());
    for (size_t i = 0; i < members.size(); ++i) {
      const auto rank = static_cast<size_t>(members[i]);
      const nlohmann::json json = {{"generation", generation_},
                                   {"rank", i},
                                   {"world_size", members.size()},
                                   {"donor", donor},
                                   {"step", step},
                                   {"port", store_ports_.back().first()}};
      EXPECT_TRUE(write_file_atomically(channel() / ("answer-" + pending_[rank]->id), json.dump()));
      pending_[rank].reset();
    }
    if (lost_since_)
      outages_.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - *lost_since_).count());
    lost_since_.reset();
  }

  TemporaryDirectory directory_;
  fs::path checkpoints_;
  PortReservation port_ = reserve_ports();
  std::vector<PortReservation> store_ports_;
  int world_size_;
  int ranks_per_node_;
  bool with_channel_;
  int starts_ = 0;
  int64_t generation_ = -1;
  int64_t group_limit_ = std::numeric_limits<int64_t>::max();
  std::vector<std::unique_ptr<Program>> ranks_;
  std::vector<std::optional<Request>> pending_;  // by rank
  std::set<std::string> seen_;
  std::set<int> done_;
  std::set<int> not_replaced_;
  std::set<int> absent_;
  std::vector<std::string> old_logs_;
  std::optional<std::chrono::steady_clock::time_point> lost_since_;
  std::vector<double> outages_;
};

inline const std::string& undisturbed(int world_size, const std::string& config = kConfig) {
  static std::map<std::pair<int, std::string>, std::string> bits;
  std::string& out = bits[{world_size, config}];
  if (out.empty()) {
    Job job(world_size, config, "", /*with_channel=*/false);
    EXPECT_TRUE(job.run()) << job.all_logs();
    out = job.bits();
  }
  return out;
}

inline void print_times(const Job& job) {
  for (const nlohmann::json& line : job.recovery_lines())
    std::printf("step %ld: ranks %s replaced, %.3f s\n", line["step"].get<long>(),
                line["ranks"].get<std::string>().c_str(), line["seconds"].get<double>());
}

struct Kill {
  std::string kind;
  int world_size = 2;
  int rank = 0;
  int step = 0;
  std::string more = "";

  // The settings of a job with this fault, in addition to kConfig.
  std::string settings() const {
    return fmt::format("{}model: {{fault: {{kind: {}, rank: {}, step: {}}}}}\n", more, kind, rank, step);
  }
};

inline constexpr char kOverGloo[] = "ddp: {shared_memory: false}\n";

}  // namespace oarlock::test
