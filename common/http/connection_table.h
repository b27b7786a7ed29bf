// Decides which connections a server keeps when a limit of HttpLimits is reached. It knows peers, states and sizes, and
// no sockets. Pure: no I/O, no clock. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "common/clock.h"
#include "common/http/server.h"

namespace oarlock {

class ConnectionTable {
 public:
  using Id = uint64_t;  // in the order of admission

  // A response that is being written for less than this time is not a slow reader's.
  static constexpr auto kSlowReader = std::chrono::seconds(1);
  static constexpr size_t kAlwaysAdmitted = 2;  // responses, whatever their size

  ConnectionTable(const HttpLimits& limits, bool is_tls)
      : limits_(limits),
        connections_(is_tls ? limits.tls_connections : limits.connections),
        per_peer_(is_tls ? limits.tls_connections_per_peer : limits.connections_per_peer) {}

  struct Admission {
    Id id;
    std::optional<Id> replaced;  // removed from the table; the caller closes it
  };
  // Admits a connection of this peer. At a limit it replaces another one: of this peer if it has reached its own limit,
  // otherwise of the peer with the most connections. Connections without a complete request or with a complete response
  // come first, then those whose response is being written; of each, the one admitted first. Empty: refused, since all
  // candidates wait for their handler.
  std::optional<Admission> admit(const std::string& peer);

  // Removes the connection that admit() would replace at the total limit; for a process that has run out of
  // descriptors.
  std::optional<Id> replace_one();

  void remove(Id id);  // no effect for an unknown id
  size_t size() const { return entries_.size(); }

  // The request is complete and needs a worker. False: a limit on tasks is reached, and nothing has changed.
  bool begin_task(Id id);

  // The handler's response of this size is about to be written. Ends the task.
  struct ResponseAdmission {
    bool is_admitted;          // false: a short 503 is sent instead
    std::vector<Id> replaced;  // removed from the table; the caller closes them
  };
  ResponseAdmission begin_response(Id id, size_t bytes, SteadyTime now);

  void end_response(Id id);  // the response is written; the peer has yet to close

 private:
  enum class State { kReceiving, kHandling, kResponding, kClosing };
  struct Peer {
    size_t connections = 0;
    size_t tasks = 0;
    size_t bytes = 0;  // of workers' responses
  };
  using Peers = std::unordered_map<std::string, Peer>;  // by address
  struct Entry {
    Peers::value_type* peer;  // of peers_
    State state = State::kReceiving;
    std::optional<size_t> bytes{};  // kResponding: of a worker's response
    SteadyTime since{};             // when its writing began
  };
  using Entries = std::map<Id, Entry>;

  Entries::iterator find_replaceable(const std::string* of_peer);  // null: of any peer
  Entries::iterator find_slow_reader(Entries::const_iterator response, SteadyTime now);
  void leave_state(Entry& entry);  // undoes what its state counts for
  void erase(Entries::iterator it);

  const HttpLimits limits_;
  const size_t connections_;
  const size_t per_peer_;
  Entries entries_;
  Peers peers_;
  size_t tasks_ = 0;
  size_t responses_ = 0;  // workers' responses that are being written
  size_t bytes_ = 0;      // of their bodies
  Id next_ = 0;
};

}  // namespace oarlock
