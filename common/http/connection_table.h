// Decides which connections a server keeps when a limit of HttpLimits is reached. It stores peers and states of
// connections, but no sockets, and performs no I/O. Not thread-safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "common/http/server.h"

namespace oarlock {

class ConnectionTable {
 public:
  using Id = uint64_t;  // in the order of admission

  ConnectionTable(const HttpLimits& limits, bool is_tls)
      : limits_(limits),
        connections_(is_tls ? limits.tls_connections : limits.connections),
        per_peer_(is_tls ? limits.tls_connections_per_peer : limits.connections_per_peer) {}

  struct Admission {
    Id id;
    std::optional<Id> replaced;  // removed from the table; the caller closes it
  };
  // Admits a connection of this peer. At a limit, it replaces another connection: of this peer if the peer has reached
  // its limit, otherwise of the peer with the most connections. Connections without a complete request or with a
  // complete response are replaced first, then connections whose response is being written, then connections that wait
  // for a response; among equals, the oldest. Returns an empty value, and admits nothing, if all candidates are being
  // authorized.
  std::optional<Admission> admit(const std::string& peer);

  // Removes the connection that admit() would replace at the total limit, and returns its id. For a process that has
  // run out of descriptors.
  std::optional<Id> replace_one();

  void remove(Id id);  // no effect for an unknown id
  size_t size() const { return entries_.size(); }

  // State changes. begin_review(): the request is complete and is being authorized; returns false, and changes nothing,
  // if a limit on reviews is reached.
  bool begin_review(Id id);
  void begin_wait(Id id);      // the request waits for a shared response
  void begin_response(Id id);  // the response is being written
  void end_response(Id id);    // the response is written; the peer has yet to close

 private:
  enum class State { kReceiving, kReviewing, kWaiting, kResponding, kClosing };
  struct Peer {
    size_t connections = 0;
    size_t reviews = 0;
  };
  using Peers = std::unordered_map<std::string, Peer>;  // by address
  struct Entry {
    Peers::value_type* peer;  // of peers_
    State state = State::kReceiving;
  };
  using Entries = std::map<Id, Entry>;

  Entries::iterator find_replaceable(const std::string* of_peer);  // null: of any peer
  void change_state(Id id, State state);
  void leave_state(const Entry& entry);  // updates the number of reviews
  void erase(Entries::iterator it);

  const HttpLimits limits_;
  const size_t connections_;
  const size_t per_peer_;
  Entries entries_;
  Peers peers_;
  size_t reviews_ = 0;
  Id next_ = 0;
};

}  // namespace oarlock
