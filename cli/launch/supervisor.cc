#include "cli/launch/supervisor.h"

#include <algorithm>
#include <csignal>

#include "common/error.h"
#include "recovery/coordinator.h"

namespace oarlock::launch {
namespace {

// A process that survives SIGKILL for this long hangs in the kernel (a dead NFS server, a device) and is abandoned.
constexpr auto kKillPatience = std::chrono::seconds(10);

// Time for the cause of a collateral failure to end by itself.
constexpr auto kCulpritGrace = std::chrono::seconds(2);

bool is_stop_signal(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

Supervisor::Supervisor(int members, Duration grace, bool recovers_losses)
    : grace_(grace), recovers_losses_(recovers_losses), members_(static_cast<size_t>(members)) {}

Supervisor::FailureKind Supervisor::classify(const Member& member, const ExitStatus& status) const {
  if (status.ok()) return FailureKind::kOk;
  if (status.code == to_int(ExitCode::kPeerLost)) return FailureKind::kPeerLost;
  if (!member.stop_requested) return FailureKind::kOwn;
  const int code = status.exit_code();
  if (member.killed && code == 128 + SIGKILL) return FailureKind::kOutOfGrace;
  if (code == to_int(ExitCode::kTempFail)) return FailureKind::kSaved;
  if (code == 128 + SIGTERM || code == 128 + SIGINT || code == 128 + SIGHUP || code == 128 + SIGQUIT)
    return FailureKind::kStopped;
  const bool is_lost = recovers_losses_ && interrupted_by_ != 0 && recovery::is_recoverable_in_place(code);
  return is_lost ? FailureKind::kLost : FailureKind::kOwn;
}

void Supervisor::request_stop(int index, int signal, SteadyTime now, Signals& signals) {
  Member& member = members_[static_cast<size_t>(index)];
  if (member.state == State::kGone) return;
  member.stop_requested = true;
  if (!member.kill_at) member.kill_at = now + grace_;
  signals.push_back({index, signal});
}

void Supervisor::kill(int index, SteadyTime now, Signals& signals) {
  Member& member = members_[static_cast<size_t>(index)];
  if (member.state == State::kGone || member.killed) return;
  member.stop_requested = true;
  member.killed = true;
  member.kill_at = now + kKillPatience;
  signals.push_back({index, SIGKILL});
}

Supervisor::Signals Supervisor::exited(std::span<const MemberExit> exits, SteadyTime now) {
  Signals signals;
  // The order of exits in one batch is unknown. A crash is more likely the cause of an error exit than its effect, so
  // deaths by signal come first.
  std::vector<MemberExit> batch(exits.begin(), exits.end());
  std::stable_partition(batch.begin(), batch.end(), [](const MemberExit& exit) { return exit.status.signal != 0; });
  for (const MemberExit& exit : batch) {
    Member& member = members_[static_cast<size_t>(exit.member)];
    const bool reacts = !stopping_ && is_reaction(exit.status, now);
    if (reacts && !exit.status.ok()) interrupted_by_ = forwarded_;
    if (!exit.status.ok()) failures_.push_back({exit.member, exit.status, classify(member, exit.status)});
    if (exit.status.ok() && (reacts || (interrupted_by_ != 0 && !exit.is_earlier))) stopped_.push_back(exit.member);
    member.state = exit.leftovers ? State::kLingering : State::kGone;
    if (exit.leftovers && !member.stop_requested) request_stop(exit.member, SIGTERM, now, signals);
  }
  if (stopping_ || failures_.empty()) return signals;
  const bool only_lost = std::all_of(failures_.begin(), failures_.end(), [](const MemberFailure& failure) {
    return failure.kind == FailureKind::kPeerLost;
  });
  if (only_lost && running() > 0) {
    if (!stop_at_) stop_at_ = now + kCulpritGrace;
  } else {
    stop(now, signals);
  }
  return signals;
}

void Supervisor::stop(SteadyTime now, Signals& signals) {
  stopping_ = true;
  stop_at_.reset();
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    if (!members_[static_cast<size_t>(i)].stop_requested) request_stop(i, SIGTERM, now, signals);
  }
}

void Supervisor::group_emptied(int member) { members_[static_cast<size_t>(member)].state = State::kGone; }

Supervisor::Signals Supervisor::signalled(int signal, SteadyTime now) {
  Signals signals;
  const bool again = signal == SIGINT && saw_interrupt_key_;
  if (is_stop_signal(signal)) {
    if (!stopping_) interrupted_by_ = signal;
    stopping_ = true;
    stop_at_.reset();
    saw_interrupt_key_ = saw_interrupt_key_ || signal == SIGINT;
  } else {
    forwarded_ = signal;
    forwarded_until_ = now + grace_;
  }
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    if (again) {
      kill(i, now, signals);
    } else if (is_stop_signal(signal)) {
      request_stop(i, signal, now, signals);
    } else if (members_[static_cast<size_t>(i)].state == State::kRunning) {
      signals.push_back({i, signal});
    }
  }
  return signals;
}

Supervisor::Signals Supervisor::time_passed(SteadyTime now) {
  Signals signals;
  if (stop_at_ && *stop_at_ <= now) stop(now, signals);
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    Member& member = members_[static_cast<size_t>(i)];
    if (member.state == State::kGone || !member.kill_at || *member.kill_at > now) continue;
    if (!member.killed) {
      kill(i, now, signals);
    } else {
      if (member.state == State::kRunning)
        failures_.push_back({i, {.code = 0, .signal = SIGKILL}, FailureKind::kOutOfGrace});
      member.state = State::kGone;
    }
  }
  return signals;
}

Supervisor::Signals Supervisor::stop_group(SteadyTime now) {
  Signals signals;
  if (!stopping_) stop(now, signals);
  return signals;
}

void Supervisor::expect_failure(SteadyTime now) {
  if (!stopping_ && !stop_at_) stop_at_ = now + kCulpritGrace;
}

bool Supervisor::is_reaction(const ExitStatus& status, SteadyTime now) const {
  return forwarded_until_ && now <= *forwarded_until_ && (status.ok() || status.code == to_int(ExitCode::kTempFail));
}

std::optional<SteadyTime> Supervisor::deadline() const {
  std::optional<SteadyTime> earliest = stop_at_;
  for (const Member& member : members_) {
    if (member.state == State::kGone || !member.kill_at) continue;
    if (!earliest || *member.kill_at < *earliest) earliest = member.kill_at;
  }
  return earliest;
}

bool Supervisor::finished() const {
  return std::all_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.state == State::kGone; });
}

int Supervisor::running() const {
  return static_cast<int>(std::count_if(members_.begin(), members_.end(),
                                        [](const Member& member) { return member.state == State::kRunning; }));
}

int Supervisor::precedence(FailureKind kind) const {
  // If no signal interrupted the group, the stop followed a collateral failure, which precedes the effects of the stop.
  if (interrupted_by_ == 0 && kind == FailureKind::kPeerLost) return static_cast<int>(FailureKind::kOutOfGrace) * 2 + 1;
  return static_cast<int>(kind) * 2;
}

GroupResult Supervisor::result() const {
  GroupResult result;
  result.interrupted_by = interrupted_by_;
  result.stopped = stopped_;
  if (failures_.empty() && !stopped_.empty() && interrupted_by_ == 0) result.interrupted_by = forwarded_;
  // max_element() returns the first of equal elements: the earliest failure.
  const auto decisive = std::max_element(
      failures_.begin(), failures_.end(),
      [this](const MemberFailure& a, const MemberFailure& b) { return precedence(a.kind) < precedence(b.kind); });
  if (decisive == failures_.end()) return result;
  result.exit_code = decisive->status.exit_code();
  result.member = decisive->member;
  result.status = decisive->status;
  return result;
}

}  // namespace oarlock::launch
