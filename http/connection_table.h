// Decides which connections a server keeps when a limit of HttpLimits is reached. It stores peers and states of
// connections, but no sockets, and performs no I/O. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "http/server.h"

namespace oarlock {

// Returns the network that the limits per peer apply to: "2001:db8:0:1::/64" for an IPv6 address, because one machine
// commonly has all addresses of such a network; otherwise the address itself, for an IPv4-mapped one the IPv4 address.
std::string network_of(const std::string& address);

class ConnectionTable {
 public:
  using Id = uint64_t;  // in the order of admission

  // The addresses whose requests were authorized last, and for how long they are preferred. A preferred address may
  // hold a few connections, so that a hostile client behind the same address gains little.
  static constexpr size_t kAuthorizedAddresses = 32;
  static constexpr std::chrono::minutes kAuthorizedTime{10};
  static constexpr size_t kPreferredConnections = 4;
  static constexpr std::chrono::milliseconds kStallTime{300};
  // The sessions that each network began recently are counted: in the current period and in the previous one.
  static constexpr std::chrono::seconds kSessionPeriod{10};
  static constexpr size_t kCountedNetworks = 1024;

  explicit ConnectionTable(const HttpLimits& limits) : limits_(limits) {}

  struct Admission {
    Id id;
    std::optional<Id> replaced;  // removed from the table; the caller closes it
  };
  // Admits a connection from this address. At a limit, it replaces another connection: of this peer if the peer has
  // reached its limit, otherwise of any peer. Returns an empty value, and admits nothing, if all candidates are being
  // authorized. The candidates are narrowed down in this order:
  //   1. addresses without an authorized request in the last kAuthorizedTime;
  //   2. the network with the most connections, and in it the address with the most;
  //   3. the state that most of these connections are in: clients that hold connections of one kind, such as readers
  //      that do not read, replace each other and not a client that sends a request or waits for its response;
  //   4. the connection that has been in its state for the longest time or, if it responds, without progress for the
  //      longest time.
  std::optional<Admission> admit(const std::string& address, SteadyTime now);

  // The connection needs a TLS session. Like admit(), with the limits on sessions, and the connections that have one.
  // Among networks with equally many connections, one of those that began the most sessions recently is replaced, so
  // that a client that begins few sessions keeps its session while others replace each other's.
  // While several of them respond without progress for kStallTime, none that is younger than that and has not sent its
  // request is replaced, so that a client can finish its handshake. An unknown id is refused.
  std::optional<Admission> begin_session(Id id, SteadyTime now);

  // Removes the connection that admit() would replace at the total limit, and returns its id. For a process that has
  // run out of descriptors.
  std::optional<Id> replace_one(SteadyTime now);

  void remove(Id id);  // no effect for an unknown id
  size_t size() const { return entries_.size(); }

  // State changes. begin_review(): the request is complete and is being authorized; returns false, and changes nothing,
  // if a limit on reviews is reached.
  bool begin_review(Id id, SteadyTime now);
  void begin_wait(Id id, SteadyTime now);       // the request waits for a shared response
  void begin_response(Id id, SteadyTime now);   // the response is being written
  void record_progress(Id id, SteadyTime now);  // a part of the response was written; no effect in another state
  void end_response(Id id, SteadyTime now);     // the response is written; the peer has yet to close

  // The request of this connection was authorized: its address is preferred for kAuthorizedTime.
  void prefer(Id id, SteadyTime now);

  // Whether a request from the address of this connection was authorized in the last kAuthorizedTime; false for an
  // unknown id.
  bool is_authorized(Id id, SteadyTime now) const;

  // Returns how many connections the peer has, 0 for a preferred address; an empty value for an unknown id. Of several
  // readers of bodies, the one with the largest weight yields first.
  std::optional<size_t> weight(Id id, SteadyTime now) const;

  // Returns when the connection began its state or, if it responds, made its last progress; an empty value for an
  // unknown id.
  std::optional<SteadyTime> last_progress(Id id) const;

 private:
  enum class State { kReceiving, kReviewing, kWaiting, kResponding, kClosing };
  struct Peer {
    size_t connections = 0;
    size_t sessions = 0;
    size_t reviews = 0;
  };
  using Peers = std::unordered_map<std::string, Peer>;
  struct Entry {
    Peers::value_type* network;  // of networks_
    Peers::value_type* address;  // of addresses_
    SteadyTime since;            // of the state, or of the last progress in it
    State state = State::kReceiving;
    bool has_session = false;
  };
  using Entries = std::map<Id, Entry>;
  using Candidates = std::vector<Entries::iterator>;

  // `of_network` is null for connections of any peer.
  Entries::iterator find_replaceable(const std::string* of_network, bool with_session, SteadyTime now);
  void count_session(const std::string& network, SteadyTime now);
  size_t recent_sessions(const std::string& network) const;
  static void spare_handshakes(Candidates& candidates, SteadyTime now);
  std::vector<const Peers::value_type*> preferred_peers(SteadyTime now) const;  // of addresses_
  void change_state(Id id, State state, SteadyTime now);
  void leave_state(const Entry& entry);  // updates the number of reviews
  void erase(Entries::iterator it);

  const HttpLimits limits_;
  Entries entries_;
  Peers networks_;
  Peers addresses_;
  struct Authorized {
    std::string address;
    SteadyTime until;
  };
  std::deque<Authorized> authorized_;  // the most recent last
  using Counts = std::unordered_map<std::string, size_t>;
  Counts begun_sessions_;  // by network
  Counts previous_sessions_;
  SteadyTime session_period_{};  // start of the current period
  size_t sessions_ = 0;
  size_t reviews_ = 0;
  Id next_ = 0;
};

}  // namespace oarlock
