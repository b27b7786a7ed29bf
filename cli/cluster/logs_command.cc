// oarlock logs: the logs of all ranks of a TrainingJob, followed across attempts.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <list>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <stop_token>
#include <thread>

#include "cli/cluster/commands.h"
#include "cli/cluster/log_lines.h"
#include "common/clock.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "http/client/address.h"

namespace oarlock::cli {
namespace {

constexpr char kLogsFooter[] = R"(
On a terminal, control characters in the logs are shown as escape sequences and colors are removed; otherwise the bytes of
the logs are not changed. With -f, the command continues with the pods of the next attempt, and ends with the job.

examples:
  oarlock logs bert
  oarlock logs bert -f --tail 20
  oarlock logs bert --rank 3 --previous
  oarlock logs bert --no-prefix > bert.log
)";

constexpr int kMaxStreams = 100;  // threads and connections of -f
constexpr std::chrono::seconds kPollPods{1};
constexpr std::chrono::seconds kRetryStream{1};
// A rank may be silent for long, and a connection may be dead: after this time, the stream is opened again.
constexpr std::chrono::minutes kIdleStream{10};
constexpr std::chrono::hours kMaxStreamTime{24 * 30};

struct LogsFlags {
  ClusterFlags cluster;
  std::string name;
  std::string container = kTrainerContainer;
  bool follows = false;
  bool is_previous = false;
  bool has_timestamps = false;
  bool has_no_prefix = false;
  std::optional<int> rank;
  std::optional<int> attempt;
  std::optional<int> tail;
};

// Standard output, which several streams share. Thread-safe.
class SharedOutput {
 public:
  // Writes complete lines. Returns false if standard output cannot be written any more.
  bool write(std::string& lines) {
    if (lines.empty()) return !is_closed_;
    const std::lock_guard lock(mutex_);
    if (!is_closed_ && !write_standard_output(lines)) is_closed_ = true;
    lines.clear();
    return !is_closed_;
  }
  bool is_closed() const { return is_closed_; }

 private:
  std::mutex mutex_;
  std::atomic<bool> is_closed_ = false;
};

class LogSink final : public http::ByteSink {
 public:
  LogSink(LogLines& lines, SharedOutput& output) : lines_(lines), output_(output) {}
  bool write(std::string_view bytes) override {
    lines_.feed(bytes, text_);
    return output_.write(text_);
  }
  void finish() {
    lines_.finish(text_);
    output_.write(text_);
  }

 private:
  LogLines& lines_;
  SharedOutput& output_;
  std::string text_;
};

struct LogQuery {
  std::string namespace_name;
  std::string pod;
  std::string container;
  bool follows = false;
  std::optional<int> tail;
  std::string since;  // a timestamp; empty: from the beginning
};

std::string log_target(const LogQuery& query) {
  std::string target =
      fmt::format("{}/log?container={}&timestamps=true",
                  kube::get_request(kube::pods(), {.namespace_name = query.namespace_name, .name = query.pod}).target,
                  http::percent_encode(query.container));
  if (query.follows) target += "&follow=true";
  if (query.tail) target += fmt::format("&tailLines={}", *query.tail);
  if (SystemTime time; !query.since.empty() && from_rfc3339(query.since, time))
    target += fmt::format("&sinceTime={}", http::percent_encode(to_rfc3339(time)));
  return target;
}

LogFormat make_log_format(const LogsFlags& flags, const api::Spec& spec, int node_rank, const Style& style) {
  LogFormat format;
  format.node_rank = node_rank;
  format.processes_per_node = spec.processes_per_node;
  format.rank = flags.rank;
  format.has_prefix = !flags.has_no_prefix;
  format.shows_timestamps = flags.has_timestamps;
  format.is_terminal = style.width > 0;
  format.style = style;
  return format;
}

kube::ApiResult<void> stream_log(const Cluster& cluster, const LogQuery& query, LogSink& sink,
                                 const std::stop_token& cancel = {}) {
  const http::StreamLimits limits{.idle = query.follows ? kIdleStream : cluster.timeout(), .total = kMaxStreamTime};
  const http::TransportResult<http::Response> response = cluster.transport().stream(
      {.method = "GET", .target = log_target(query), .body = "", .content_type = ""}, sink, limits, cancel);
  if (!response) return tl::make_unexpected(kube::to_api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(kube::to_api_error(*response));
  return {};
}

bool has_started(const PodView& pod, const std::string& container) {
  const ContainerView* found = pod.container(container);
  return found != nullptr && (found->running || found->end);
}

bool has_ended(const PodView& pod, const std::string& container) {
  const ContainerView* found = pod.container(container);
  return pod.phase == "Succeeded" || pod.phase == "Failed" || (found != nullptr && found->end.has_value());
}

// Whether the pod runs the rank that --rank selects.
bool is_selected(const LogsFlags& flags, const api::Spec& spec, const PodView& pod) {
  return !flags.rank || pod.node_rank == *flags.rank / std::max(spec.processes_per_node, 1);
}

Error log_error(const Cluster& cluster, const kube::ApiError& error, const std::string& namespace_name,
                const std::string& pod) {
  return to_user_error(error,
                       {.verb = "get",
                        .resource = kube::pods(),
                        .key = {.namespace_name = namespace_name, .name = pod},
                        .subresource = "log"},
                       cluster.config());
}

// ---- Without -f ----------------------------------------------------------------------------------------------------

Result<int> print_logs(const Cluster& cluster, const LogsFlags& flags, const api::TrainingJob& job, int attempt) {
  const Style style = detect_style();
  SharedOutput output;
  ASSIGN_OR_RETURN(const std::vector<PodView> pods, list_pods(cluster, job));
  int printed = 0;
  std::optional<Error> last_error;
  for (const PodView& pod : pods) {
    if (pod.attempt != attempt || !is_selected(flags, job.spec, pod)) continue;
    LogLines lines(make_log_format(flags, job.spec, pod.node_rank, style));
    LogSink sink(lines, output);
    const auto read = stream_log(cluster,
                                 {.namespace_name = job.metadata.namespace_name,
                                  .pod = pod.name,
                                  .container = flags.container,
                                  .follows = false,
                                  .tail = flags.tail,
                                  .since = ""},
                                 sink);
    sink.finish();
    if (output.is_closed()) return fail(ExitCode::kIoErr, "standard output cannot be written");
    if (read) {
      ++printed;
      continue;
    }
    last_error = log_error(cluster, read.error(), job.metadata.namespace_name, pod.name);
    if (last_error->code == ExitCode::kNoPermission) return tl::make_unexpected(*last_error);
    print_error(fmt::format("oarlock logs: note: {}\n", last_error->message));
  }
  if (printed > 0) return 0;
  if (last_error) return fail(ExitCode::kNoInput, fmt::format("no log of attempt {} can be read", attempt));
  return fail(
      ExitCode::kNoInput,
      fmt::format(
          "{} has no pods of attempt {}{}: they have not been created yet, or were deleted (spec.cleanPodPolicy; "
          "only the previous attempt is kept)",
          flags.name, attempt, flags.rank ? fmt::format(" with rank {}", *flags.rank) : ""));
}

// ---- With -f -------------------------------------------------------------------------------------------------------

// The stream of one pod, on its own thread.
class LogFollower {
 public:
  LogFollower(const Cluster& cluster, const LogsFlags& flags, const api::TrainingJob& job, const PodView& pod,
              std::optional<int> tail, const Style& style, SharedOutput& output)
      : cluster_(cluster),
        container_(flags.container),
        tail_(tail),
        name_space_(job.metadata.namespace_name),
        pod_(pod.name),
        lines_(make_log_format(flags, job.spec, pod.node_rank, style)),
        output_(output),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

  bool is_done() const { return is_done_; }

 private:
  void run(const std::stop_token& stop) {
    LogSink sink(lines_, output_);
    while (!stop.stop_requested() && !output_.is_closed()) {
      LogQuery query{.namespace_name = name_space_,
                     .pod = pod_,
                     .container = container_,
                     .follows = true,
                     .tail = tail_,
                     .since = lines_.last_timestamp()};
      if (!query.since.empty()) {
        query.tail.reset();
        lines_.restart();
      }
      const auto read = stream_log(cluster_, query, sink, stop);
      // The incomplete line of a stream that broke follows completely in the next one.
      if (read) sink.finish();
      if (is_over(read)) break;
      std::this_thread::sleep_for(kRetryStream);
    }
    is_done_ = true;
  }

  // Whether the log is complete: the container has ended, or the pod no longer exists.
  bool is_over(const kube::ApiResult<void>& read) {
    if (!read && read.error().kind == kube::ApiErrorKind::kForbidden) {
      print_error(
          fmt::format("oarlock logs: error: {}\n", log_error(cluster_, read.error(), name_space_, pod_).message));
      return true;
    }
    const auto pod = cluster_.try_get(kube::pods(), {.namespace_name = name_space_, .name = pod_});
    if (!pod) return pod.error().kind == kube::ApiErrorKind::kNotFound;
    const std::optional<PodView> view = pod_view(*pod);
    // A stream that broke may lack the last lines, so that only a complete one ends the log.
    if (view && !has_ended(*view, container_)) return false;
    if (read) return true;
    const kube::ApiErrorKind kind = read.error().kind;
    if (kind == kube::ApiErrorKind::kTransport || kind == kube::ApiErrorKind::kTooManyRequests) return !view;
    print_error(fmt::format("oarlock logs: note: {}\n", log_error(cluster_, read.error(), name_space_, pod_).message));
    return true;
  }

  const Cluster& cluster_;
  const std::string container_;
  const std::optional<int> tail_;
  const std::string name_space_;
  const std::string pod_;
  LogLines lines_;
  SharedOutput& output_;
  std::atomic<bool> is_done_ = false;
  std::jthread thread_;
};

Result<int> follow_logs(const Cluster& cluster, const LogsFlags& flags, api::TrainingJob job, int first_attempt) {
  const Style style = detect_style();
  SharedOutput output;
  std::list<LogFollower> followers;
  std::set<std::string> seen;  // uids of pods
  int announced = first_attempt;
  bool is_limited = false;
  // --tail is about the past: the logs of pods that start later are followed from their first line.
  std::optional<int> tail = flags.tail;
  while (!output.is_closed()) {
    // The job is read before its pods, so that no pod of a finished job is missed.
    const Result<LoadedJob> loaded = load_job(cluster, flags.name);
    const bool is_gone = !loaded && loaded.error().code == ExitCode::kNoInput;
    if (loaded) job = loaded->job;
    if (const auto pods = list_pods(cluster, job)) {
      for (const PodView& pod : *pods) {
        const bool is_wanted = flags.attempt ? pod.attempt == *flags.attempt : pod.attempt >= first_attempt;
        if (!is_wanted || !is_selected(flags, job.spec, pod) || !has_started(pod, flags.container)) continue;
        if (seen.contains(pod.uid)) continue;
        std::erase_if(followers, [](const LogFollower& one) { return one.is_done(); });
        if (followers.size() >= kMaxStreams) {
          if (!is_limited)
            print_error(
                fmt::format("oarlock logs: note: only {} pods are followed at the same time; choose one with --rank\n",
                            kMaxStreams));
          is_limited = true;
          continue;
        }
        if (pod.attempt > announced) {
          announced = pod.attempt;
          print_error(fmt::format("oarlock logs: attempt {} has started\n", announced));
        }
        seen.insert(pod.uid);
        followers.emplace_back(cluster, flags, job, pod, tail, style, output);
      }
      if (!is_limited) tail.reset();
    } else if (pods.error().code == ExitCode::kNoPermission) {
      return tl::make_unexpected(pods.error());
    }
    const bool is_streaming =
        std::any_of(followers.begin(), followers.end(), [](const LogFollower& one) { return !one.is_done(); });
    const bool is_past_attempt = flags.attempt && job.status.attempt > *flags.attempt;
    if (!is_streaming && (is_gone || is_past_attempt || api::is_terminal(job.status.phase))) return 0;
    std::this_thread::sleep_for(kPollPods);
  }
  return fail(ExitCode::kIoErr, "standard output cannot be written");
}

Result<int> show_logs(const LogsFlags& flags) {
  if (flags.is_previous && flags.attempt) return fail(ExitCode::kUsage, "--previous and --attempt exclude each other");
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  ASSIGN_OR_RETURN(const LoadedJob loaded, load_job(cluster, flags.name));
  const api::TrainingJob& job = loaded.job;
  if (flags.rank && *flags.rank >= job.world_size()) {
    return fail(ExitCode::kUsage, fmt::format("--rank is {}, and {} has the ranks 0 to {}", *flags.rank, flags.name,
                                              job.world_size() - 1));
  }
  int attempt = flags.attempt.value_or(job.status.attempt);
  if (flags.is_previous) {
    if (job.status.attempt == 0)
      return fail(ExitCode::kNoInput, fmt::format("{} is in its first attempt; there is no previous one", flags.name));
    attempt = job.status.attempt - 1;
  }
  if (!flags.follows) return print_logs(cluster, flags, job, attempt);
  return follow_logs(cluster, flags, job, attempt);
}

}  // namespace

void add_logs(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<LogsFlags>();
  CLI::App* logs_app = app.add_subcommand("logs", "Print the logs of all ranks of a TrainingJob.");
  set_usage(*logs_app, "oarlock logs NAME [-f] [--rank N] [--tail N] [--previous] [OPTIONS]");
  logs_app->footer(kLogsFooter);
  add_name_argument(*logs_app, flags->name);
  logs_app->add_flag("-f,--follow", flags->follows, "follow the logs, across attempts, until the job ends");
  logs_app->add_option("--rank", flags->rank, "only this rank")->type_name("N")->check(CLI::Range(0, 4096 * 128));
  logs_app->add_option("--tail", flags->tail, "only the last lines of each pod (default: all)")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000'000));
  logs_app->add_flag("--previous", flags->is_previous, "the attempt before the current one");
  logs_app->add_option("--attempt", flags->attempt, "this attempt (default: the current one)")
      ->type_name("N")
      ->check(CLI::Range(0, 999'999'999));
  logs_app->add_flag("--timestamps", flags->has_timestamps, "print the time of each line");
  logs_app->add_flag("--no-prefix", flags->has_no_prefix, "print no [rank N] before each line");
  logs_app->add_option("-c,--container", flags->container, "container of the pods")
      ->type_name("NAME")
      ->capture_default_str();
  add_cluster_options(*logs_app, flags->cluster);
  logs_app->callback([flags, &chosen] { chosen = [flags] { return show_logs(*flags); }; });
}

}  // namespace oarlock::cli
