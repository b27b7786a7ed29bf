#include "cli/launch/rank_processes.h"

#include <fmt/format.h>

#include <array>
#include <sstream>
#include <tuple>
#include <utility>

#include "common/files.h"
#include "common/number.h"
#include "common/text.h"

namespace oarlock::launch {
namespace {

constexpr size_t kMaxProgram = 60;  // bytes

std::vector<ProcessStat> all_processes() {
  std::vector<ProcessStat> out;
  visit_directory("/proc", [&](const std::filesystem::path& path) {
    if (!parse_integer<pid_t>(path.filename().string())) return;
    const Result<std::string> text = read_file(path / "stat");
    if (const auto stat = text ? parse_process_stat(*text) : std::nullopt) out.push_back(*stat);
  });
  return out;
}

// The function of the kernel in which a process waits; "" if it does not wait, or may not be observed.
std::string wait_channel_of(pid_t pid) {
  const std::string text = read_file(fmt::format("/proc/{}/wchan", pid)).value_or("");
  return text == "0" ? "" : shortened(text, kMaxProgram);
}

bool is_stopped_state(char state) { return state == 'T' || state == 't'; }

}  // namespace

std::optional<ProcessStat> parse_process_stat(std::string_view text) {
  const size_t open = text.find(" (");
  const size_t close = text.rfind(") ");
  if (open == std::string_view::npos || close == std::string_view::npos || close < open + 2) return std::nullopt;
  const std::optional<pid_t> pid = parse_integer<pid_t>(text.substr(0, open));
  std::istringstream fields{std::string(text.substr(close + 2))};
  ProcessStat out{.program = printable(text.substr(open + 2, close - open - 2))};
  fields >> out.state >> out.parent;
  std::string skipped;
  for (int i = 0; i < 9; ++i) fields >> skipped;  // from the process group to the page faults of children
  uint64_t user = 0;
  uint64_t system = 0;
  fields >> user >> system;
  if (!pid || !fields) return std::nullopt;
  out.pid = *pid;
  out.ticks = user + system;
  return out;
}

std::string state_name(char state) {
  switch (state) {
    case 'R':
      return "running";
    case 'S':
      return "sleeping";
    case 'D':
      return "uninterruptible";
    case 'T':
      return "stopped";
    case 't':
      return "traced";
    case 'Z':
    case 'X':
      return "ended";
    case 'I':
      return "idle";
    default:
      return std::string(1, state);
  }
}

RankProcesses::Membership RankProcesses::membership_of(const ProcessStat& process, int rank_of_parent) {
  const pid_t pid = process.pid;
  Membership out{.rank = rank_of_parent};
  if (!starts_ranks_) return out;
  if (const auto known = ranks_.find(pid); known != ranks_.end()) return known->second;
  if (process.state == 'D') return out;  // it may hold the lock of its memory, for which a reader waits
  const std::string environment = '\0' + read_file(fmt::format("/proc/{}/environ", pid)).value_or("");
  const std::string name = std::string(1, '\0') + kEnvRank + "=";
  if (const size_t at = environment.find(name); at != std::string::npos) {
    const std::string_view value = std::string_view(environment).substr(at + name.size());
    const std::optional<int> rank = parse_integer<int>(value.substr(0, value.find('\0')));
    out = {.rank = rank.value_or(rank_of_parent), .is_stated = rank.has_value()};
  }
  return ranks_[pid] = out;
}

std::map<int, RankActivity> RankProcesses::read(const std::map<int, pid_t>& processes) {
  if (processes.empty()) return {};
  const std::vector<ProcessStat> all = all_processes();
  std::multimap<pid_t, const ProcessStat*> by_parent;
  std::map<pid_t, const ProcessStat*> by_pid;
  for (const ProcessStat& one : all) {
    by_parent.emplace(one.parent, &one);
    by_pid.emplace(one.pid, &one);
  }
  std::erase_if(ranks_, [&](const auto& entry) { return !by_pid.contains(entry.first); });
  std::vector<std::pair<const ProcessStat*, int>> queue;  // with the rank of the parent
  for (const auto& [rank, pid] : processes) {
    if (const auto it = by_pid.find(pid); it != by_pid.end()) queue.emplace_back(it->second, rank);
  }
  std::map<int, std::pair<std::tuple<bool, bool, uint64_t>, const ProcessStat*>> chosen;  // with the weight of each
  for (size_t i = 0; i < queue.size() && i <= all.size(); ++i) {
    const auto [one, parent_rank] = queue[i];
    const auto [rank, is_stated] = membership_of(*one, parent_rank);
    const std::tuple weight(is_stated, is_stopped_state(one->state), one->ticks);
    auto& best = chosen[rank];
    if (best.second == nullptr || weight > best.first) best = {weight, one};
    const auto [begin, end] = by_parent.equal_range(one->pid);
    for (auto child = begin; child != end; ++child) queue.emplace_back(child->second, rank);
  }
  std::map<int, RankActivity> out;
  for (const auto& [rank, best] : chosen) {
    const ProcessStat* one = best.second;
    out[rank] = {.rank = rank,
                 .pid = one->pid,
                 .program = shortened(one->program, kMaxProgram),
                 .state = state_name(one->state),
                 .wait_channel = wait_channel_of(one->pid)};
  }
  return out;
}

}  // namespace oarlock::launch
