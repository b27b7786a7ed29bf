// What both ends of a connection between launchers share: its options, and its lines that are no messages of the
// regroup protocol (recovery/messages.h). The launcher's first line contains the token of the job; the
// coordinator refuses another one, and answers each report, which renews the lease of the launcher.
#pragma once

#include <poll.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/launch/host_lookup.h"
#include "common/files.h"
#include "recovery/line_channel.h"

namespace oarlock::launch {

struct LauncherLinkOptions {
  std::string host;                                     // of the coordinator
  int port = 0;                                         // on which the coordinator listens
  std::string token;                                    // that all launchers of the job share
  std::chrono::milliseconds reconnect_timeout{60'000};  // without a connection to the coordinator
  // If set, as it must be with CoordinatorOptions::min_nodes: the ranks end, and this launcher never connects again,
  // when the coordinator has not answered a report that was sent within this time. Less than shrink_after.
  std::optional<std::chrono::milliseconds> lease = {};
  HostLookup::Lookup lookup = HostLookup::lookup_with_system;
};

// ---- Sockets ----

// Sets the options of a connection between launchers. The other node may disappear without closing it.
void set_link_options(const FileDescriptor& socket);

// Begins to connect to another launcher, without blocking. The descriptor is not open if that is not possible.
FileDescriptor begin_connect(const SocketAddress& to);
// Returns the error with which an attempt to connect has ended; 0 if it has succeeded.
int connect_error(int socket);

// Returns the numeric address of the other end of a connected socket; empty if it is not known.
std::string peer_address(int socket);

// Adds what the loop waits for: lines from the channel, and space for those that are queued.
void add_channel(const recovery::LineChannel& channel, std::vector<pollfd>& out);

// Sends more of the queued lines before the process ends, and discards what has arrived, because unread bytes would
// turn the close into a reset. Adds the channel to `waiting` if it needs more time.
void finish_channel(recovery::LineChannel& channel, std::vector<pollfd>& waiting);

// ---- Lines ----

inline constexpr size_t kMaxHelloLine = 1024;  // bytes, before the peer is authenticated

std::string hello_line(const std::string& token);
// Returns whether the first line of a connection proves that the peer has the token.
bool is_valid_hello(const std::string& line, const std::string& token);

std::string refusal_line();
bool is_refusal(const std::string& line);

// `sequence` is that of the report that the coordinator answers.
std::string lease_line(uint64_t sequence);
std::optional<uint64_t> lease_from_line(const std::string& line);

}  // namespace oarlock::launch
