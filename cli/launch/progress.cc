#include "cli/launch/progress.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <system_error>
#include <utility>

#include "cli/launch/polling.h"
#include "common/status_query.h"

namespace oarlock::launch {

Progress::Progress(ProgressOptions options, const Clock& clock)
    : options_(std::move(options)),
      clock_(clock),
      board_(options_.node, clock),
      server_(options_.port, options_.uid, board_, clock, [this](int64_t request) { write_request(request); }),
      inputs_(options_.ranks.size()) {
  if (options_.directory.empty()) return;
  for (size_t i = 0; i < inputs_.size(); ++i) open_fifo(inputs_[i], i);
  if (inputs_.empty() || !inputs_[0].fifo.open()) return;
  auto started =
      KubeflowEndpoint::start(options_.directory, [fifo = inputs_[0].fifo.get()](const ProgressReport& report) {
        const std::string line = to_json(report) + "\n";
        [[maybe_unused]] const ssize_t written = ::write(fifo, line.data(), line.size());  // a full FIFO loses the line
      });
  if (started) kubeflow_.emplace(*std::move(started));
}

void Progress::open_fifo(Input& input, size_t member) const {
  input.path = options_.directory / fmt::format("progress.{}", member);
  if (::mkfifo(input.path.c_str(), 0600) != 0) return;
  input.fifo = FileDescriptor(::open(input.path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
}

Environment Progress::environment(size_t member, const Environment& inherited) const {
  if (!inputs_[member].fifo.open()) return {};
  Environment out = kubeflow_ ? kubeflow_->environment(inherited) : Environment();
  out[kEnvProgress] = inputs_[member].path.string();
  out[kEnvCheckpointRequest] = request_file().string();
  return out;
}

// A rename, so that each request gives the file another time and its whole content. A program that cannot be requested
// loses an early checkpoint only.
void Progress::write_request(int64_t request) const {
  if (options_.directory.empty()) return;
  const std::filesystem::path written = options_.directory / "checkpoint-request.new";
  std::ofstream(written) << request << '\n';
  std::error_code ignored;
  std::filesystem::rename(written, request_file(), ignored);
}

void Progress::before_start(size_t member, const InPodRestarts& restarts) {
  read(member);
  board_.set_restarts(restarts);
  Input& input = inputs_[member];
  input.lines = LineSplitter(kProgressLineLimit);  // a killed process may have written a part of a line
  input.has_progress = false;
  for (Count* count : {&input.step, &input.checkpoint}) count->base = count->highest;
  server_.ranks_start(clock_.steady());
}

void Progress::add_process(size_t member, pid_t pid) { board_.add_process(options_.ranks[member], pid); }

void Progress::add_descriptors(SteadyTime now, std::vector<pollfd>& out) const {
  for (const Input& input : inputs_) {
    if (input.fifo.open() && (!input.paused_until || *input.paused_until <= now))
      out.push_back({input.fifo.get(), POLLIN, 0});
  }
}

void Progress::read_due() {
  const SteadyTime now = clock_.steady();
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].paused_until.value_or(now) <= now) read(i);
  }
}

bool Progress::read(size_t member) {
  Input& input = inputs_[member];
  input.paused_until.reset();
  if (!input.fifo.open()) return input.has_progress;
  std::array<char, 65536> buffer;
  size_t bytes = 0;
  std::vector<std::string> lines;
  while (bytes < kMaxReadBytes) {
    const ssize_t got = ::read(input.fifo.get(), buffer.data(), buffer.size());
    if (got <= 0) break;
    bytes += static_cast<size_t>(got);
    input.lines.feed({buffer.data(), static_cast<size_t>(got)},
                     [&lines](std::string_view line) { lines.emplace_back(line); });
  }
  for (size_t i = lines.size() - std::min(lines.size(), kMaxLines); i < lines.size(); ++i)
    add(member, progress_report_from_json(lines[i]));
  if (bytes > 0) input.paused_until = clock_.steady() + kReadInterval;
  return input.has_progress;
}

void Progress::finish(GroupResult& result) {
  for (size_t i = 0; i < inputs_.size(); ++i) read(i);
  const ProgressReport newest = board_.newest();
  result.step = std::max(result.step, newest.step.value_or(-1));
  result.checkpoint_step = std::max(result.checkpoint_step, newest.checkpoint_step.value_or(-1));
}

void Progress::add(size_t member, const std::optional<ProgressReport>& report) {
  if (!report) return board_.add_invalid_line();
  if (*report == ProgressReport{.rank = report->rank}) return;  // such as {"loss": NaN}
  board_.add(options_.ranks[member], *report);
  Input& input = inputs_[member];
  for (const bool advances : {input.step.advances(report->step), input.checkpoint.advances(report->checkpoint_step)})
    input.has_progress = input.has_progress || advances;
}

bool Progress::Count::advances(std::optional<int64_t> value) {
  if (!value) return false;
  base = std::min(base.value_or(*value), *value);
  highest = std::max(highest.value_or(*value), *value);
  return *value > *base;
}

void Progress::read_output(size_t member, std::string_view line) {
  const SteadyTime start = clock_.steady();
  constexpr std::chrono::seconds kPeriod(1);
  if (match_budget_until_ >= start + kPeriod) return;
  if (const auto report = options_.pattern->match(line)) add(member, report);
  match_budget_until_ = std::max(match_budget_until_, start) + (clock_.steady() - start) * (kPeriod / kMaxMatchTime);
}

void Progress::time_passed(const InPodRestarts& restarts) {
  board_.set_restarts(restarts);
  server_.time_passed(clock_.steady());
}

std::optional<SteadyTime> Progress::deadline() const {
  std::optional<SteadyTime> out = server_.deadline();
  for (const Input& input : inputs_) out = earlier(out, input.paused_until);
  return out;
}

}  // namespace oarlock::launch
