#include "common/http/connection_table.h"

#include <algorithm>
#include <tuple>

namespace oarlock {

std::optional<ConnectionTable::Admission> ConnectionTable::admit(const std::string& peer) {
  Admission admission{.id = next_, .replaced = {}};
  const auto known = peers_.find(peer);
  const bool peer_is_full = known != peers_.end() && known->second.connections >= per_peer_;
  if (peer_is_full || entries_.size() >= connections_) {
    const auto victim = find_replaceable(peer_is_full ? &peer : nullptr);
    if (victim == entries_.end()) return std::nullopt;
    admission.replaced = victim->first;
    erase(victim);
  }
  Peers::value_type& counted = *peers_.try_emplace(peer).first;
  ++counted.second.connections;
  entries_.emplace(next_++, Entry{.peer = &counted});
  return admission;
}

std::optional<ConnectionTable::Id> ConnectionTable::replace_one() {
  const auto victim = find_replaceable(nullptr);
  if (victim == entries_.end()) return std::nullopt;
  const Id id = victim->first;
  erase(victim);
  return id;
}

void ConnectionTable::remove(Id id) {
  if (const auto it = entries_.find(id); it != entries_.end()) erase(it);
}

bool ConnectionTable::begin_task(Id id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return false;
  size_t& of_peer = it->second.peer->second.tasks;
  if (tasks_ >= limits_.tasks || of_peer >= limits_.tasks_per_peer) return false;
  ++tasks_;
  ++of_peer;
  it->second.state = State::kHandling;
  return true;
}

ConnectionTable::ResponseAdmission ConnectionTable::begin_response(Id id, size_t bytes, SteadyTime now) {
  ResponseAdmission admission{.is_admitted = true, .replaced = {}};
  const auto it = entries_.find(id);
  if (it == entries_.end()) return admission;
  Entry& entry = it->second;
  leave_state(entry);
  entry.state = State::kResponding;
  entry.bytes = bytes;
  entry.since = now;
  Peer& peer = entry.peer->second;
  peer.bytes += bytes;
  bytes_ += bytes;
  ++responses_;
  while (responses_ > kAlwaysAdmitted && bytes_ > limits_.response_bytes) {
    const auto victim = find_slow_reader(it, now);
    if (victim == entries_.end()) {
      leave_state(entry);
      admission.is_admitted = false;
      break;
    }
    admission.replaced.push_back(victim->first);
    erase(victim);
  }
  return admission;
}

void ConnectionTable::end_response(Id id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  leave_state(it->second);
  it->second.state = State::kClosing;
}

ConnectionTable::Entries::iterator ConnectionTable::find_replaceable(const std::string* of_peer) {
  // The smallest one is replaced.
  const auto rank = [&](const Entries::value_type& candidate) {
    const auto& [id, entry] = candidate;
    const bool is_replaceable =
        entry.state != State::kHandling && (of_peer == nullptr || entry.peer->first == *of_peer);
    const size_t others = entries_.size() - entry.peer->second.connections;
    return std::tuple(!is_replaceable, entry.state == State::kResponding, others, id);
  };
  const auto first = std::min_element(entries_.begin(), entries_.end(),
                                      [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return first == entries_.end() || std::get<0>(rank(*first)) ? entries_.end() : first;
}

// A response is replaced if its reader is slow, or if its peer receives more than the new response's peer.
ConnectionTable::Entries::iterator ConnectionTable::find_slow_reader(Entries::const_iterator response, SteadyTime now) {
  const size_t of_new_peer = response->second.peer->second.bytes;
  auto found = entries_.end();
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (it == response || !entry.bytes) continue;
    const size_t of_peer = entry.peer->second.bytes;
    if (of_peer <= of_new_peer && now - entry.since < kSlowReader) continue;
    const auto rank = [&](const Entry& candidate) {
      return std::tuple(bytes_ - candidate.peer->second.bytes, candidate.since);
    };
    if (found == entries_.end() || rank(entry) < rank(found->second)) found = it;
  }
  return found;
}

void ConnectionTable::leave_state(Entry& entry) {
  Peer& peer = entry.peer->second;
  if (entry.state == State::kHandling) {
    --tasks_;
    --peer.tasks;
  }
  if (entry.bytes) {
    bytes_ -= *entry.bytes;
    peer.bytes -= *entry.bytes;
    --responses_;
    entry.bytes.reset();
  }
}

void ConnectionTable::erase(Entries::iterator it) {
  leave_state(it->second);
  Peers::value_type& peer = *it->second.peer;
  entries_.erase(it);
  if (--peer.second.connections == 0) peers_.erase(peers_.find(peer.first));
}

}  // namespace oarlock
