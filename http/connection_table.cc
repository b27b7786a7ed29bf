#include "http/connection_table.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <utility>

namespace oarlock {

std::string network_of(const std::string& address) {
  in6_addr parsed{};
  // A link-local address may end in "%eth0".
  if (::inet_pton(AF_INET6, address.substr(0, address.find('%')).c_str(), &parsed) != 1) return address;
  char text[INET6_ADDRSTRLEN] = "";
  if (IN6_IS_ADDR_V4MAPPED(&parsed)) return ::inet_ntop(AF_INET, &parsed.s6_addr[12], text, sizeof text);
  std::fill(&parsed.s6_addr[8], &parsed.s6_addr[16], uint8_t{0});
  return std::string(::inet_ntop(AF_INET6, &parsed, text, sizeof text)) + "/64";
}

std::optional<ConnectionTable::Admission> ConnectionTable::admit(const std::string& address, SteadyTime now) {
  Admission admission{.id = next_, .replaced = {}};
  const std::string network = network_of(address);
  const auto known = networks_.find(network);
  const bool peer_is_full = known != networks_.end() && known->second.connections >= limits_.connections_per_peer;
  if (peer_is_full || entries_.size() >= limits_.connections) {
    const auto replaced_entry = find_replaceable(peer_is_full ? &network : nullptr, false, now);
    if (replaced_entry == entries_.end()) return std::nullopt;
    admission.replaced = replaced_entry->first;
    erase(replaced_entry);
  }
  const Entry entry{.network = &*networks_.try_emplace(network).first,
                    .address = &*addresses_.try_emplace(address).first,
                    .since = now};
  ++entry.network->second.connections;
  ++entry.address->second.connections;
  entries_.emplace(next_++, entry);
  return admission;
}

std::optional<ConnectionTable::Admission> ConnectionTable::begin_session(Id id, SteadyTime now) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return std::nullopt;
  const auto& [network, peer] = *it->second.network;
  count_session(network, now);
  Admission admission{.id = id, .replaced = {}};
  const bool peer_is_full = peer.sessions >= limits_.tls_sessions_per_peer;
  if (peer_is_full || sessions_ >= limits_.tls_sessions) {
    const auto replaced_entry = find_replaceable(peer_is_full ? &network : nullptr, true, now);
    if (replaced_entry == entries_.end()) return std::nullopt;
    admission.replaced = replaced_entry->first;
    erase(replaced_entry);
  }
  it->second.has_session = true;
  it->second.since = now;
  ++it->second.network->second.sessions;
  ++sessions_;
  return admission;
}

std::optional<ConnectionTable::Id> ConnectionTable::replace_one(SteadyTime now) {
  const auto replaced_entry = find_replaceable(nullptr, false, now);
  if (replaced_entry == entries_.end()) return std::nullopt;
  const Id id = replaced_entry->first;
  erase(replaced_entry);
  return id;
}

void ConnectionTable::remove(Id id) {
  if (const auto it = entries_.find(id); it != entries_.end()) erase(it);
}

bool ConnectionTable::begin_review(Id id, SteadyTime now) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return false;
  size_t& of_peer = it->second.network->second.reviews;
  if (reviews_ >= limits_.reviews || of_peer >= limits_.reviews_per_peer) return false;
  ++reviews_;
  ++of_peer;
  it->second.state = State::kReviewing;
  it->second.since = now;
  return true;
}

void ConnectionTable::begin_wait(Id id, SteadyTime now) { change_state(id, State::kWaiting, now); }
void ConnectionTable::begin_response(Id id, SteadyTime now) { change_state(id, State::kResponding, now); }
void ConnectionTable::end_response(Id id, SteadyTime now) { change_state(id, State::kClosing, now); }

void ConnectionTable::record_progress(Id id, SteadyTime now) {
  const auto it = entries_.find(id);
  if (it != entries_.end() && it->second.state == State::kResponding) it->second.since = now;
}

std::optional<SteadyTime> ConnectionTable::last_progress(Id id) const {
  const auto it = entries_.find(id);
  return it == entries_.end() ? std::nullopt : std::optional<SteadyTime>(it->second.since);
}

void ConnectionTable::change_state(Id id, State state, SteadyTime now) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  leave_state(it->second);
  it->second.state = state;
  it->second.since = now;
}

void ConnectionTable::prefer(Id id, SteadyTime now) {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return;
  const std::string& address = it->second.address->first;
  std::erase_if(authorized_, [&](const Authorized& entry) { return entry.address == address || entry.until <= now; });
  authorized_.push_back({.address = address, .until = now + kAuthorizedTime});
  if (authorized_.size() > kAuthorizedAddresses) authorized_.pop_front();
}

bool ConnectionTable::is_authorized(Id id, SteadyTime now) const {
  const auto it = entries_.find(id);
  return it != entries_.end() && std::ranges::any_of(authorized_, [&](const Authorized& known) {
           return known.address == it->second.address->first && known.until > now;
         });
}

std::vector<const ConnectionTable::Peers::value_type*> ConnectionTable::preferred_peers(SteadyTime now) const {
  std::vector<const Peers::value_type*> preferred;
  for (const Authorized& known : authorized_) {
    const auto peer = addresses_.find(known.address);
    if (known.until > now && peer != addresses_.end() && peer->second.connections <= kPreferredConnections)
      preferred.push_back(&*peer);
  }
  return preferred;
}

std::optional<size_t> ConnectionTable::weight(Id id, SteadyTime now) const {
  const auto it = entries_.find(id);
  if (it == entries_.end()) return std::nullopt;
  const bool is_preferred = std::ranges::count(preferred_peers(now), it->second.address) > 0;
  return is_preferred ? 0 : it->second.network->second.connections;
}

ConnectionTable::Entries::iterator ConnectionTable::find_replaceable(const std::string* of_network, bool with_session,
                                                                     SteadyTime now) {
  Candidates candidates;
  for (auto it = entries_.begin(); it != entries_.end(); ++it) {
    const Entry& entry = it->second;
    if (entry.state == State::kReviewing || (with_session && !entry.has_session)) continue;
    if (of_network == nullptr || entry.network->first == *of_network) candidates.push_back(it);
  }
  if (candidates.empty()) return entries_.end();
  const auto preferred = preferred_peers(now);
  const auto is_preferred = [&](const auto& it) { return std::ranges::count(preferred, it->second.address) > 0; };
  if (!std::ranges::all_of(candidates, is_preferred)) std::erase_if(candidates, is_preferred);
  // Keeps the candidates for which the count is largest.
  const auto keep_most = [&](const auto& count) {
    const size_t most = count(*std::ranges::max_element(candidates, {}, count));
    std::erase_if(candidates, [&](const auto& it) { return count(it) < most; });
  };
  keep_most([](const auto& it) { return it->second.network->second.connections; });
  keep_most([](const auto& it) { return it->second.address->second.connections; });
  if (with_session) {
    keep_most([this](const auto& it) { return recent_sessions(it->second.network->first); });
    spare_handshakes(candidates, now);
  }
  std::array<size_t, 5> in_state{};
  for (const auto& it : candidates) ++in_state.at(static_cast<size_t>(it->second.state));
  keep_most([&](const auto& it) { return in_state.at(static_cast<size_t>(it->second.state)); });
  return *std::ranges::min_element(candidates, {}, [](const auto& it) { return it->second.since; });
}

void ConnectionTable::count_session(const std::string& network, SteadyTime now) {
  const bool is_over = now - session_period_ >= kSessionPeriod;
  if (is_over || begun_sessions_.size() >= kCountedNetworks) {
    const bool is_long_over = now - session_period_ >= 2 * kSessionPeriod;
    previous_sessions_ = is_long_over ? Counts() : std::exchange(begun_sessions_, {});
    begun_sessions_.clear();
    session_period_ = now;
  }
  ++begun_sessions_[network];
}

size_t ConnectionTable::recent_sessions(const std::string& network) const {
  const auto count_in = [&](const Counts& counts) {
    const auto it = counts.find(network);
    return it == counts.end() ? 0 : it->second;
  };
  return count_in(begun_sessions_) + count_in(previous_sessions_);
}

// A single session without progress may be that of a client with a slow network.
void ConnectionTable::spare_handshakes(Candidates& candidates, SteadyTime now) {
  constexpr int kSeveral = 2;
  const auto is_old = [now](const auto& it) { return now - it->second.since >= kStallTime; };
  const auto is_in = [](const auto& it, State state) { return it->second.state == state; };
  const auto stalled =
      std::ranges::count_if(candidates, [&](const auto& it) { return is_in(it, State::kResponding) && is_old(it); });
  if (stalled < kSeveral) return;
  std::erase_if(candidates, [&](const auto& it) { return is_in(it, State::kReceiving) && !is_old(it); });
}

void ConnectionTable::leave_state(const Entry& entry) {
  if (entry.state != State::kReviewing) return;
  --reviews_;
  --entry.network->second.reviews;
}

void ConnectionTable::erase(Entries::iterator it) {
  leave_state(it->second);
  const Entry entry = it->second;
  if (entry.has_session) {
    --sessions_;
    --entry.network->second.sessions;
  }
  entries_.erase(it);
  const auto release = [](Peers& peers, Peers::value_type& peer) {
    if (--peer.second.connections == 0) peers.erase(peers.find(peer.first));
  };
  release(networks_, *entry.network);
  release(addresses_, *entry.address);
}

}  // namespace oarlock
