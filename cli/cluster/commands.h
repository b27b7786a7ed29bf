// The commands that work on a cluster, and their common functions.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/types.h"
#include "cli/cluster/cluster.h"
#include "cli/cluster/objects.h"
#include "cli/cluster/output.h"
#include "cli/command.h"

namespace oarlock::cli {

// Adds all commands of this directory.
void add_cluster_commands(CLI::App& app, Chosen& chosen);

void add_list(CLI::App& app, Chosen& chosen);
void add_status(CLI::App& app, Chosen& chosen);
void add_why(CLI::App& app, Chosen& chosen);
void add_top(CLI::App& app, Chosen& chosen);
void add_logs(CLI::App& app, Chosen& chosen);
void add_submit(CLI::App& app, Chosen& chosen);
void add_suspend(CLI::App& app, Chosen& chosen);
void add_resume(CLI::App& app, Chosen& chosen);
void add_delete(CLI::App& app, Chosen& chosen);
void add_wait(CLI::App& app, Chosen& chosen);

// Adds -o with the formats of this list, such as "table, wide, json". `format` must outlive the parsing.
void add_output_option(CLI::App& app, OutputFormat& format, const std::vector<std::string>& names);

// Adds the positional argument NAME. Removes a prefix such as "trainingjob/", as kubectl does.
void add_name_argument(CLI::App& app, std::string& name);
void add_names_argument(CLI::App& app, std::vector<std::string>& names);

// Adds --timeout with a duration such as 30s or 2h. `timeout` must outlive the parsing.
void add_timeout_option(CLI::App& app, std::optional<std::chrono::milliseconds>& timeout, const std::string& help);

// "trainingjob.oarlock.dev/NAME", as kubectl prints it.
std::string qualified_name(const std::string& name);

// Reads the job and its JSON. Fails as Cluster::training_job() does.
struct LoadedJob {
  nlohmann::json object;
  api::TrainingJob job;
};
Result<LoadedJob> load_job(const Cluster& cluster, const std::string& name);

// Returns the pods that belong to this job, not to an earlier one of the same name, in the order of attempt and node
// rank.
Result<std::vector<PodView>> list_pods(const Cluster& cluster, const api::TrainingJob& job);

// Returns the events about one object, at most 2000, or a note for the user if they cannot be read.
struct ListedEvents {
  std::vector<EventView> events;
  std::string note;
};
ListedEvents list_events(const Cluster& cluster, const std::string& namespace_name, const std::string& kind,
                         const std::string& name, const std::string& uid);

// Returns the position of a waiting job in its ClusterQueue, from 1. Absent if the job does not wait, or if Kueue's
// visibility API is not served, refuses this user, or does not have the job among the first 1000 of its LocalQueue.
std::optional<int> read_queue_position(const Cluster& cluster, const api::TrainingJob& job);

// Returns the topology that the job requests, with the domain of its first pod that has a node, if this user may read
// the node: "required domain of rack: r7". Empty if it requests none. `pods` are those of the current attempt.
std::string read_topology(const Cluster& cluster, const api::TrainingJob& job, const std::vector<PodView>& pods);

}  // namespace oarlock::cli
