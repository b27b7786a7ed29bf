// oarlock top: a live table of the ranks of a TrainingJob, from their /statusz and /metrics through the API server's
// proxy for pods.
#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <nlohmann/json.hpp>
#include <thread>

#include "cli/cluster/commands.h"
#include "cli/cluster/job_view.h"
#include "cli/cluster/rank_view.h"
#include "common/clock.h"
#include "common/status_macros.h"
#include "common/terminal.h"
#include "common/text.h"
#include "http/client/address.h"
#include "operator/core/desired.h"
#include "operator/core/text.h"

namespace oarlock::cli {
namespace {

constexpr char kTopFooter[] = R"(
LAG is the number of steps behind the newest rank. STEP TIME and DATA WAIT are means since the last refresh, or since the
start of the rank in the first table. Ranks of other programs than oarlock-trainer do not report these values.

examples:
  oarlock top bert
  oarlock top bert --interval 10s -o wide
  oarlock top bert -o json | jq '.ranks[].status.step'
)";

constexpr size_t kMaxRanks = 512;
constexpr size_t kThreads = 8;
constexpr std::chrono::milliseconds kRankTimeout{5000};

struct TopFlags {
  ClusterFlags cluster;
  std::string name;
  OutputFormat format = OutputFormat::kTable;
  std::chrono::milliseconds interval{2000};
  bool is_once = false;
};

struct RankAddress {
  int rank = 0;
  const PodView* pod = nullptr;
  int port = 0;
};

std::string proxy_target(const std::string& namespace_name, const RankAddress& address, const char* path) {
  return fmt::format("/api/v1/namespaces/{}/pods/{}:{}/proxy{}", http::percent_encode(namespace_name),
                     http::percent_encode(address.pod->name), address.port, path);
}

// Reads the documents of one rank. The error of a forbidden request is stored in `forbidden`.
RankView read_rank(const Cluster& cluster, const std::string& namespace_name, const RankAddress& address,
                   std::optional<kube::ApiError>& forbidden) {
  RankView view;
  view.rank = address.rank;
  view.pod = address.pod->name;
  view.node = address.pod->node;
  view.pod_state = pod_state(*address.pod);
  if (address.pod->phase != "Running") return view;
  const auto timeout = std::min(cluster.timeout(), kRankTimeout);
  const auto status =
      cluster.read_limited(proxy_target(namespace_name, address, kStatusPath), kMaxStatusBytes, timeout);
  if (!status) {
    if (status.error().kind == kube::ApiErrorKind::kForbidden) forbidden = status.error();
    view.error = "no response";
    return view;
  }
  view.status = rank_status_from_json(*status);
  if (!view.status) {
    view.error = "no /statusz of oarlock-trainer";
    return view;
  }
  view.status->phase = control::sanitize_line(view.status->phase, 40);
  view.status->updated_at = control::sanitize_line(view.status->updated_at, 40);
  if (const auto metrics =
          cluster.read_limited(proxy_target(namespace_name, address, kMetricsPath), kMaxMetricsBytes, timeout))
    view.metrics = parse_rank_metrics(*metrics);
  return view;
}

std::vector<RankAddress> rank_addresses(const api::TrainingJob& job, const std::vector<PodView>& pods) {
  const int first_port = control::metrics_port(job);
  std::vector<RankAddress> out;
  for (const PodView& pod : pods) {
    if (pod.attempt != job.status.attempt) continue;
    for (int local = 0; local < job.spec.processes_per_node && out.size() < kMaxRanks; ++local)
      out.push_back({pod.node_rank * job.spec.processes_per_node + local, &pod, first_port + local});
  }
  return out;
}

Result<std::vector<RankView>> read_ranks(const Cluster& cluster, const api::TrainingJob& job) {
  ASSIGN_OR_RETURN(const std::vector<PodView> pods, list_pods(cluster, job));
  const std::vector<RankAddress> addresses = rank_addresses(job, pods);
  std::vector<RankView> views(addresses.size());
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::optional<kube::ApiError> forbidden;
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < std::min(kThreads, addresses.size()); ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < addresses.size(); at = next++) {
          std::optional<kube::ApiError> error;
          views[at] = read_rank(cluster, job.metadata.namespace_name, addresses[at], error);
          const std::lock_guard lock(mutex);
          if (error) forbidden = error;
        }
      });
    }
  }
  // A missing right concerns all ranks; a single response of status 403 comes from the program in the pod.
  const bool has_status =
      std::any_of(views.begin(), views.end(), [](const RankView& view) { return view.status.has_value(); });
  if (forbidden && !has_status) {
    return tl::make_unexpected(to_user_error(*forbidden,
                                             {.verb = "get",
                                              .resource = kube::pods(),
                                              .key = {.namespace_name = job.metadata.namespace_name, .name = ""},
                                              .subresource = "proxy"},
                                             cluster.config()));
  }
  return views;
}

int terminal_height() {
  winsize size{};
  return ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 ? size.ws_row : 24;
}

// Cuts the text to the lines that fit on the terminal, since the cursor cannot be moved above its first line.
std::string fit_lines(const std::string& text, int height) {
  size_t end = 0;
  for (int line = 0; line < std::max(height - 1, 1); ++line) {
    const size_t next = text.find('\n', end);
    if (next == std::string::npos) return text;
    end = next + 1;
  }
  return text.substr(0, end);
}

std::string top_text(const api::TrainingJob& job, const std::vector<RankView>& ranks,
                     const std::vector<RankView>& before, bool is_wide, const Style& style, SystemTime now) {
  const std::string name = printable(job.metadata.name);
  const std::string phase = job.status.phase == api::Phase::kNone ? "New" : api::to_string(job.status.phase);
  const std::string progress = printable(progress_text(job.status, now));
  const size_t used = display_width(name) + display_width(phase) + 4;
  const size_t left = style.width == 0 ? 0 : std::max<size_t>(static_cast<size_t>(style.width), used + 1) - used;
  std::string out = fmt::format("{}  {}  {}\n", style.paint(Color::kBold, name),
                                style.paint(phase_color(job.status.phase), phase), fit(progress, left));
  if (const std::string queue = printable(queue_line(job.status, now)); !queue.empty())
    out += fit("queue " + queue, style.width == 0 ? 0 : static_cast<size_t>(style.width)) + "\n";
  out += rank_table(ranks, before, is_wide).to_text(style);
  if (ranks.size() == kMaxRanks && job.world_size() > static_cast<int>(kMaxRanks))
    out += fmt::format("the first {} of {} ranks are shown\n", kMaxRanks, job.world_size());
  return out;
}

Result<int> show_top(const TopFlags& flags) {
  ASSIGN_OR_RETURN(const Cluster cluster, Cluster::connect(flags.cluster));
  Style style = detect_style();
  const bool is_document = flags.format == OutputFormat::kJson || flags.format == OutputFormat::kYaml;
  const bool is_live = style.width > 0 && !flags.is_once && !is_document;
  std::vector<RankView> before;
  size_t lines = 0;  // of the previous table
  while (true) {
    ASSIGN_OR_RETURN(const LoadedJob loaded, load_job(cluster, flags.name));
    ASSIGN_OR_RETURN(std::vector<RankView> ranks, read_ranks(cluster, loaded.job));
    if (is_document) {
      nlohmann::json document = {
          {"job", flags.name}, {"phase", api::to_string(loaded.job.status.phase)}, {"ranks", nlohmann::json::array()}};
      for (const RankView& rank : ranks) document["ranks"].push_back(rank_document(rank));
      return write_standard_output(document_text(document, flags.format)).map([] { return 0; });
    }
    if (ranks.empty() && !is_live) {
      const std::string queue = queue_line(loaded.job.status, RealClock().now());
      return fail(ExitCode::kNoInput, fmt::format("{} has no pods of attempt {}; its phase is {}{}", flags.name,
                                                  loaded.job.status.attempt, api::to_string(loaded.job.status.phase),
                                                  queue.empty() ? "" : "; queue " + printable(queue)));
    }
    const std::string text =
        top_text(loaded.job, ranks, before, flags.format == OutputFormat::kWide, style, RealClock().now());
    if (!is_live) return write_standard_output(text).map([] { return 0; });
    const std::string shown = fit_lines(text, terminal_height());
    const std::string erase = lines > 0 ? fmt::format("\x1b[{}A\r\x1b[J", lines) : "";
    RETURN_IF_ERROR(write_standard_output(erase + shown));
    lines = static_cast<size_t>(std::count(shown.begin(), shown.end(), '\n'));
    if (api::is_terminal(loaded.job.status.phase)) return 0;
    before = std::move(ranks);
    std::this_thread::sleep_for(flags.interval);
    style = detect_style();  // the size of the terminal may have changed
  }
}

}  // namespace

void add_top(CLI::App& app, Chosen& chosen) {
  auto flags = std::make_shared<TopFlags>();
  CLI::App* top_app = app.add_subcommand(
      "top",
      "Show the ranks of a TrainingJob: step, step time, data wait, memory and lag. Refreshes in place on a terminal.");
  set_usage(*top_app, "oarlock top NAME [--interval DURATION] [-o FORMAT] [OPTIONS]");
  top_app->footer(kTopFooter);
  add_name_argument(*top_app, flags->name);
  top_app
      ->add_option_function<std::string>(
          "--interval",
          [flags](const std::string& text) {
            const auto interval = parse_duration(text);
            if (!interval || interval->count() < 500)
              throw CLI::ValidationError("--interval", "expected a duration of at least 500ms, such as 2s");
            flags->interval = *interval;
          },
          "time between two refreshes (default: 2s)")
      ->type_name("DURATION");
  top_app->add_flag("--once", flags->is_once, "print one table, on a terminal too");
  add_output_option(*top_app, flags->format, {"table", "wide", "json", "yaml"});
  add_cluster_options(*top_app, flags->cluster);
  top_app->callback([flags, &chosen] { chosen = [flags] { return show_top(*flags); }; });
}

}  // namespace oarlock::cli
