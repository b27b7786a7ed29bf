#include "cli/launch/supervisor.h"

#include <algorithm>
#include <csignal>

#include "common/error.h"

namespace oarlock::launch {
namespace {

// A process that outlives SIGKILL for this long hangs in the kernel (a dead NFS server, a device): it is given up.
constexpr auto kKillPatience = std::chrono::seconds(10);

constexpr auto kBlameGrace = std::chrono::seconds(2);

bool is_stop_signal(int signal) {
  return signal == SIGTERM || signal == SIGINT || signal == SIGHUP || signal == SIGQUIT;
}

}  // namespace

Supervisor::Supervisor(int members, Duration grace) : grace_(grace), members_(static_cast<size_t>(members)) {}

Supervisor::Blame Supervisor::blame(const Member& member, const ExitStatus& status) const {
  if (status.ok()) return Blame::kOk;
  if (status.code == to_int(ExitCode::kPeerLost)) return Blame::kPeerLost;
  if (!member.asked) return Blame::kReal;
  const int code = status.exit_code();
  if (member.killed && code == 128 + SIGKILL) return Blame::kOutOfGrace;
  if (code == to_int(ExitCode::kTempFail)) return Blame::kSaved;
  if (code == 128 + SIGTERM || code == 128 + SIGINT || code == 128 + SIGHUP || code == 128 + SIGQUIT)
    return Blame::kStopped;
  return Blame::kReal;
}

void Supervisor::ask(int index, int signal, SteadyTime now, Signals& signals) {
  Member& member = members_[static_cast<size_t>(index)];
  if (member.state == State::kGone) return;
  member.asked = true;
  if (!member.kill_at) member.kill_at = now + grace_;
  signals.push_back({index, signal});
}

void Supervisor::kill(int index, SteadyTime now, Signals& signals) {
  Member& member = members_[static_cast<size_t>(index)];
  if (member.state == State::kGone || member.killed) return;
  member.asked = true;
  member.killed = true;
  member.kill_at = now + kKillPatience;
  signals.push_back({index, SIGKILL});
}

Supervisor::Signals Supervisor::exited(std::span<const MemberExit> exits, SteadyTime now) {
  Signals signals;
  // Deaths that were noticed together have no order in time. A crash is likelier the cause of an error exit than the
  // other way round, so signals come first.
  std::vector<MemberExit> batch(exits.begin(), exits.end());
  std::stable_partition(batch.begin(), batch.end(), [](const MemberExit& exit) { return exit.status.signal != 0; });
  for (const MemberExit& exit : batch) {
    Member& member = members_[static_cast<size_t>(exit.member)];
    if (!exit.status.ok()) failures_.push_back({exit.member, exit.status, blame(member, exit.status)});
    member.state = exit.leftovers ? State::kLingering : State::kGone;
    if (exit.leftovers && !member.asked) ask(exit.member, SIGTERM, now, signals);
  }
  if (stopping_ || failures_.empty()) return signals;
  const bool only_lost = std::all_of(failures_.begin(), failures_.end(),
                                     [](const Failure& failure) { return failure.blame == Blame::kPeerLost; });
  if (only_lost && running() > 0) {
    if (!stop_at_) stop_at_ = now + kBlameGrace;
  } else {
    stop(now, signals);
  }
  return signals;
}

void Supervisor::stop(SteadyTime now, Signals& signals) {
  stopping_ = true;
  stop_at_.reset();
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    if (!members_[static_cast<size_t>(i)].asked) ask(i, SIGTERM, now, signals);
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
  }
  for (int i = 0; i < static_cast<int>(members_.size()); ++i) {
    if (again) {
      kill(i, now, signals);
    } else if (is_stop_signal(signal)) {
      ask(i, signal, now, signals);
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
      if (member.state == State::kRunning) failures_.push_back({i, {.code = 0, .signal = SIGKILL}, Blame::kOutOfGrace});
      member.state = State::kGone;
    }
  }
  return signals;
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

Verdict Supervisor::verdict() const {
  Verdict verdict;
  verdict.interrupted_by = interrupted_by_;
  // max_element returns the first of equals: the earliest.
  const auto worst = std::max_element(failures_.begin(), failures_.end(), [this](const Failure& a, const Failure& b) {
    // Without an interruption from outside, the stop followed a lost peer: that is the better answer than its effects.
    const auto weight = [this](Blame blame) {
      return interrupted_by_ == 0 && blame == Blame::kPeerLost ? static_cast<int>(Blame::kOutOfGrace) * 2 + 1
                                                               : static_cast<int>(blame) * 2;
    };
    return weight(a.blame) < weight(b.blame);
  });
  if (worst == failures_.end()) return verdict;
  verdict.exit_code = worst->status.exit_code();
  verdict.member = worst->member;
  verdict.status = worst->status;
  return verdict;
}

}  // namespace oarlock::launch
