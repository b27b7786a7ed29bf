#include "common/http/connection_table.h"

#include <algorithm>
#include <tuple>

namespace oarlock {

std::optional<ConnectionTable::Admission> ConnectionTable::admit(const std::string& peer) {
  Admission admission{.id = next_, .replaced = {}};
  const auto known = peers_.find(peer);
  const bool peer_is_full = known != peers_.end() && known->second.connections >= per_peer_;
  if (peer_is_full || entries_.size() >= connections_) {
    const auto replaced_entry = find_replaceable(peer_is_full ? &peer : nullptr);
    if (replaced_entry == entries_.end()) return std::nullopt;
    admission.replaced = replaced_entry->first;
    erase(replaced_entry);
  }
  Peers::value_type& counted = *peers_.try_emplace(peer).first;
  ++counted.second.connections;
  entries_.emplace(next_++, Entry{.peer = &counted});
  return admission;
}

std::optional<ConnectionTable::Id> ConnectionTable::replace_one() {
  const auto replaced_entry = find_replaceable(nullptr);
  if (replaced_entry == entries_.end()) return std::nullopt;
  const Id id = replaced_entry->first;
  erase(replaced_entry);
  return id;
}

void ConnectionTable::remove(Id id) {
  if (const auto it = entries_.find(id); it != entries_.end()) erase(it);
}

bool ConnectionTable::begin_review(Id id) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return false;
  size_t& of_peer = it->second.peer->second.reviews;
  if (reviews_ >= limits_.reviews || of_peer >= limits_.reviews_per_peer) return false;
  ++reviews_;
  ++of_peer;
  it->second.state = State::kReviewing;
  return true;
}

void ConnectionTable::begin_wait(Id id) { change_state(id, State::kWaiting); }
void ConnectionTable::begin_response(Id id) { change_state(id, State::kResponding); }
void ConnectionTable::end_response(Id id) { change_state(id, State::kClosing); }

void ConnectionTable::change_state(Id id, State state) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  leave_state(it->second);
  it->second.state = state;
}

ConnectionTable::Entries::iterator ConnectionTable::find_replaceable(const std::string* of_peer) {
  // The connection with the smallest rank is replaced.
  const auto rank = [&](const Entries::value_type& candidate) {
    const auto& [id, entry] = candidate;
    const bool is_replaceable =
        entry.state != State::kReviewing && (of_peer == nullptr || entry.peer->first == *of_peer);
    const size_t others = entries_.size() - entry.peer->second.connections;
    const int progress = entry.state == State::kWaiting ? 2 : entry.state == State::kResponding ? 1 : 0;
    return std::tuple(!is_replaceable, progress, others, id);
  };
  const auto first = std::min_element(entries_.begin(), entries_.end(),
                                      [&](const auto& a, const auto& b) { return rank(a) < rank(b); });
  return first == entries_.end() || std::get<0>(rank(*first)) ? entries_.end() : first;
}

void ConnectionTable::leave_state(const Entry& entry) {
  if (entry.state != State::kReviewing) return;
  --reviews_;
  --entry.peer->second.reviews;
}

void ConnectionTable::erase(Entries::iterator it) {
  leave_state(it->second);
  Peers::value_type& peer = *it->second.peer;
  entries_.erase(it);
  if (--peer.second.connections == 0) peers_.erase(peers_.find(peer.first));
}

}  // namespace oarlock
