// The reports of launchers to a coordinator.
#pragma once

#include <gmock/gmock.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "recovery/coordinator.h"

namespace oarlock::recovery {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Two nodes with one rank each; the reports of launchers 101 and 102.
class CoordinatorTest : public ::testing::Test {
 protected:
  static CoordinatorOptions options() {
    CoordinatorOptions options;
    options.nodes = 2;
    options.max_restarts = 3;
    return options;
  }

  static RankReport joined(ProcessId process, int64_t generation, int64_t step, std::string digest = "") {
    RankReport report;
    report.phase = RankPhase::kJoined;
    report.process = process;
    report.generation = generation;
    report.step = step;
    report.digest = std::move(digest);
    return report;
  }
  static RankReport running(ProcessId process, int64_t generation) {
    RankReport report;
    report.phase = RankPhase::kRunning;
    report.process = process;
    report.generation = generation;
    return report;
  }
  static RankReport exited(ProcessId process, int exit_code, int64_t generation = 0) {
    RankReport report;
    report.generation = generation;
    report.phase = exit_code == 0 ? RankPhase::kFinished : RankPhase::kExited;
    report.process = process;
    report.exit_code = exit_code;
    return report;
  }

  // The next report of a launcher that has received no order.
  NodeReport next_report(int node, uint64_t launcher, const RankReport& rank) {
    NodeReport report;
    report.node = node;
    report.launcher = launcher;
    report.sequence = ++sequence_;
    report.ranks = {rank};
    return report;
  }

  // A report that acknowledges the current order, by default of the first launcher of the node.
  bool report(Coordinator& coordinator, int node, const RankReport& rank, bool acknowledges = true,
              uint64_t launcher = 0) {
    NodeReport report = next_report(node, launcher == 0 ? static_cast<uint64_t>(101 + node) : launcher, rank);
    report.generation = report.member_of = rank.generation;
    report.coordinator = 9;
    report.order_sequence = acknowledges ? coordinator.order().sequence : 0;
    return coordinator.received(report, now_);
  }

  // A group of generation 0 with the processes 1 and 2.
  Coordinator running_group(const CoordinatorOptions& options) {
    Coordinator coordinator(options, 9);
    report(coordinator, 0, joined(1, -1, -1));
    report(coordinator, 1, joined(2, -1, -1));
    report(coordinator, 0, running(1, 0));
    report(coordinator, 1, running(2, 0));
    EXPECT_EQ(coordinator.order().kind, OrderKind::kRun);
    return coordinator;
  }

  // Node rank 1 was requested to stop, and its rank still runs.
  NodeReport stopping() {
    NodeReport report = next_report(1, 102, running(2, 0));
    report.is_stopping = true;
    return report;
  }

  SteadyTime now_{};
  uint64_t sequence_ = 0;
};

}  // namespace oarlock::recovery
