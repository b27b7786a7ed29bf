// oarlock suspend, resume and delete.
#include <fmt/format.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "cli/cluster/commands.h"
#include "cli/cluster/wait_for_phase.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"

namespace oarlock::cli {
namespace {

constexpr char kSuspendFooter[] = R"(
The ranks receive SIGTERM, save a checkpoint and end. The job keeps its place, its restarts and its checkpoints.

examples:
  oarlock suspend bert
  oarlock suspend bert vit --wait
)";
constexpr char kResumeFooter[] = R"(
The next attempt resumes from the newest checkpoint.

examples:
  oarlock resume bert
  oarlock resume bert --wait --timeout 10m
)";
constexpr char kDeleteFooter[] = R"(
The pods, the Service and a claim that the operator created are deleted with the job; a claim of spec.checkpoints.claimName
is not.

examples:
  oarlock delete bert
  oarlock delete bert vit --wait
)";

struct ChangeFlags {
  ClusterFlags cluster;
  std::vector<std::string> names;
  bool waits = false;
  std::optional<std::chrono::milliseconds> timeout;
};

struct ChangedJobs {
  std::vector<std::string> names;
  int exit_code = 0;  // that of the first error
};

// Changes all jobs, as kubectl does: an error of one job is printed, and does not keep the others from their change.
ChangedJobs change_all(const std::vector<std::string>& names, std::string_view program,
                       const std::function<Result<void>(const std::string&)>& change) {
  ChangedJobs out;
  for (const std::string& name : names) {
    const Result<void> done = change(name);
    if (done) {
      out.names.push_back(name);
      continue;
    }
    print_error(fmt::format("{}: error: {}\n", program, done.error().message));
    if (out.exit_code == 0) out.exit_code = to_int(done.error().code);
    if (done.error().code == ExitCode::kUnavailable) break;
  }
  return out;
}

// Waits for all changed jobs in turn. Returns the first exit code that is not 0.
Result<int> wait_for_all(const Cluster& cluster, const ChangeFlags& flags, const ChangedJobs& changed, WaitGoal goal,
                         std::string_view program) {
  int exit_code = changed.exit_code;
  if (!flags.waits) return exit_code;
  for (const std::string& name : changed.names) {
    ASSIGN_OR_RETURN(const int code, wait_for_goal(cluster, name, goal, flags.timeout, program));
    if (exit_code == 0) exit_code = code;
  }
  return exit_code;
}

Result<void> set_suspend(const Cluster& cluster, const std::string& name, bool suspend) {
  ASSIGN_OR_RETURN(const LoadedJob loaded, load_job(cluster, name));
  const api::TrainingJob& job = loaded.job;
  if (api::is_terminal(job.status.phase)) {
    return fail(ExitCode::kFailure,
                fmt::format("{} has ended ({}) and cannot be {}; submit it again under another name, or "
                            "delete it first",
                            name, api::to_string(job.status.phase), suspend ? "suspended" : "resumed"));
  }
  if (job.spec.suspend == suspend) {
    return write_standard_output(
        fmt::format("{} is already {}\n", qualified_name(name), suspend ? "suspended" : "resumed"));
  }
  // The version makes a change by others in between an error instead of an overwritten decision.
  const nlohmann::json body = {{"metadata", {{"resourceVersion", job.metadata.resource_version}}},
                               {"spec", {{"suspend", suspend}}}};
  const kube::ObjectKey key{.namespace_name = cluster.namespace_name(), .name = name};
  RETURN_IF_ERROR(cluster.send(kube::patch_request(training_jobs(), key, body.dump()),
                               {.verb = "patch", .resource = training_jobs(), .key = key, .subresource = ""}));
  return write_standard_output(fmt::format("{} {}\n", qualified_name(name), suspend ? "suspended" : "resumed"));
}

// The operator writes the status of a job all the time, so that the version of a read job is often outdated.
Result<void> set_suspend_with_retries(const Cluster& cluster, const std::string& name, bool suspend) {
  constexpr int kAttempts = 5;
  for (int attempt = 1;; ++attempt) {
    const Result<void> done = set_suspend(cluster, name, suspend);
    if (done || done.error().code != ExitCode::kTempFail || attempt == kAttempts) return done;
  }
}

Result<int> suspend_jobs(const ChangeFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  constexpr char kProgram[] = "oarlock suspend";
  const ChangedJobs changed = change_all(
      flags.names, kProgram, [&](const std::string& name) { return set_suspend_with_retries(cluster, name, true); });
  return wait_for_all(cluster, flags, changed, WaitGoal::kSuspended, kProgram);
}

Result<int> resume_jobs(const ChangeFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  constexpr char kProgram[] = "oarlock resume";
  const ChangedJobs changed = change_all(
      flags.names, kProgram, [&](const std::string& name) { return set_suspend_with_retries(cluster, name, false); });
  return wait_for_all(cluster, flags, changed, WaitGoal::kRunning, kProgram);
}

Result<void> delete_job(const Cluster& cluster, const std::string& name) {
  ASSIGN_OR_RETURN(const LoadedJob loaded, load_job(cluster, name));
  const kube::ObjectKey key{.namespace_name = cluster.namespace_name(), .name = name};
  // The uid keeps a job of the same name that was created in between.
  RETURN_IF_ERROR(
      cluster.send(kube::delete_request(training_jobs(), key, {.uid = loaded.job.metadata.uid, .resource_version = ""}),
                   {.verb = "delete", .resource = training_jobs(), .key = key, .subresource = ""}));
  return write_standard_output(fmt::format("{} deleted\n", qualified_name(name)));
}

Result<int> delete_jobs(const ChangeFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  constexpr char kProgram[] = "oarlock delete";
  const ChangedJobs changed =
      change_all(flags.names, kProgram, [&](const std::string& name) { return delete_job(cluster, name); });
  return wait_for_all(cluster, flags, changed, WaitGoal::kDeleted, kProgram);
}

struct ChangeCommand {
  const char* name;
  const char* description;
  const char* footer;
  const char* wait_help;
  Result<int> (*run)(const ChangeFlags&);
};

void add_change_command(CLI::App& app, Chosen& chosen, const ChangeCommand& command) {
  auto flags = std::make_shared<ChangeFlags>();
  CLI::App* sub = app.add_subcommand(command.name, command.description);
  set_usage(*sub, fmt::format("oarlock {} NAME... [--wait] [OPTIONS]", command.name));
  sub->footer(command.footer);
  add_names_argument(*sub, flags->names);
  sub->add_flag("--wait", flags->waits, command.wait_help);
  add_timeout_option(*sub, flags->timeout, "longest wait for each job (default: unlimited)");
  add_cluster_options(*sub, flags->cluster);
  sub->callback([flags, &chosen, run = command.run] { chosen = [flags, run] { return run(*flags); }; });
}

}  // namespace

void add_suspend(CLI::App& app, Chosen& chosen) {
  add_change_command(app, chosen,
                     {.name = "suspend",
                      .description = "Stop the ranks of TrainingJobs after a checkpoint, and free their nodes.",
                      .footer = kSuspendFooter,
                      .wait_help = "wait until the pods are stopped",
                      .run = suspend_jobs});
}

void add_resume(CLI::App& app, Chosen& chosen) {
  add_change_command(app, chosen,
                     {.name = "resume",
                      .description = "Start suspended TrainingJobs again.",
                      .footer = kResumeFooter,
                      .wait_help = "wait until all pods run",
                      .run = resume_jobs});
}

void add_delete(CLI::App& app, Chosen& chosen) {
  add_change_command(app, chosen,
                     {.name = "delete",
                      .description = "Delete TrainingJobs with their pods.",
                      .footer = kDeleteFooter,
                      .wait_help = "wait until the jobs no longer exist",
                      .run = delete_jobs});
}

}  // namespace oarlock::cli
