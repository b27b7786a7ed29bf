// The options of oarlock launch, and the environment variables that replace them.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/group.h"
#include "cli/launch/preflight.h"
#include "cli/launch/recovery.h"
#include "cli/launch/topology.h"
#include "common/error.h"

namespace oarlock::cli {

constexpr double to_seconds(std::chrono::milliseconds duration) {
  return std::chrono::duration<double>(duration).count();
}

struct LaunchFlags {
  launch::TopologyFlags topology;  // except nproc
  std::string nproc;               // a number, or a word for one
  double grace = 20;
  bool no_prefix = false;
  bool no_standby = false;
  bool standalone = false;
  std::string module;
  int max_restarts = 0;
  std::string restart_policy = "group";
  bool has_restart_options = false;  // one of --max-restarts, --restart-policy and --restart-backoff was given
  double regroup_timeout = to_seconds(recovery::CoordinatorOptions().leave_timeout);
  double rejoin_timeout = to_seconds(recovery::CoordinatorOptions().form_timeout);
  std::optional<int> min_nodes;
  double shrink_after = to_seconds(recovery::CoordinatorOptions().shrink_after);
  bool has_rejoin_timeout = false;  // the option was given, as for the next one
  bool has_shrink_after = false;
  double backoff = to_seconds(recovery::CoordinatorOptions().backoff);
  std::string log_dir;
  std::string redirects;
  std::string tee;
  std::string shown;  // local ranks
  std::string cpu_binding;
  std::string rdzv_backend;
  std::string rdzv_endpoint;
  std::string rdzv_id;
  std::string progress_pattern;
  std::string preflight;  // its settings; empty: none
};

// Declares the options. `flags` must outlive the parsing.
void add_launch_options(CLI::App& launch, LaunchFlags& flags);

// Sets the members of the flags for the options that were given. Called after the parsing.
void record_given_options(const CLI::App& launch, LaunchFlags& flags);

// Applies torchrun's --standalone and --rdzv-endpoint to the flags of the topology.
Result<launch::TopologyFlags> with_rendezvous(launch::TopologyFlags topology, const LaunchFlags& flags);

// Reads a number of at least 0 that the operator set. Nothing if the variable is not set, or empty.
Result<std::optional<int>> read_count(const launch::Environment& environment, const char* name);

// Applies the variables with which the operator sets restarts. Options on the command line replace all of them.
Result<void> apply_restart_variables(const launch::Environment& environment, LaunchFlags& flags);

// Applies the variables with which the operator lets a group continue with fewer nodes. They have no effect on a group
// that cannot, so that a command line that sets restarts in another way remains valid.
Result<void> apply_shrink_variables(const launch::Environment& environment, const launch::Topology& topology,
                                    LaunchFlags& flags);

// Returns the recovery of this node; null without --max-restarts.
Result<std::unique_ptr<launch::Recovery>> make_recovery(const LaunchFlags& flags, const launch::Topology& topology,
                                                        const launch::Environment& environment);

// Returns the preflight of this node; nothing without --preflight and without the variable of the operator.
Result<std::optional<launch::PreflightOptions>> make_preflight(const LaunchFlags& flags,
                                                               const launch::Topology& topology,
                                                               const launch::Environment& environment);

// Where the output of the ranks goes, by local rank.
struct RankOutput {
  std::vector<int> redirects;
  std::vector<int> tee;
  std::vector<bool> shown;

  launch::LogMode mode(int rank, int stream) const {
    const auto i = static_cast<size_t>(rank);
    return (redirects[i] & stream) != 0 && (tee[i] & stream) == 0 ? launch::LogMode::kFiles
                                                                  : launch::LogMode::kConsoleAndFiles;
  }
};

Result<RankOutput> output_of_ranks(const LaunchFlags& flags, int ranks);

}  // namespace oarlock::cli
