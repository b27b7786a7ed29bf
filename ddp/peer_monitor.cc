#include "ddp/peer_monitor.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <tuple>

#include "common/status_macros.h"
#include "ddp/socket.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;
using Instant = std::chrono::steady_clock::time_point;

constexpr size_t kMaxLineLength = 4096;
constexpr milliseconds kReadTimeout{500};  // for the line of a request

std::string position_text(const PeerActivity& activity) {
  const std::string step = activity.step < 0 ? "" : fmt::format("step {}, ", activity.step);
  return fmt::format("{}{}, collective {}", step, activity.phase, activity.collective);
}

// The order in which ranks make progress. The step comes first because a replayed CUDA graph counts no collectives.
std::tuple<int64_t, int64_t> progress(const PeerActivity& activity) { return {activity.step, activity.collective}; }

std::string ranks_text(const std::vector<int>& ranks) {
  return fmt::format("{} {}", ranks.size() == 1 ? "rank" : "ranks", fmt::join(ranks, ", "));
}

}  // namespace

std::string diagnose(const PeerActivity& own, std::span<const PeerReport> peers) {
  std::vector<int> silent;
  std::vector<int> gone;
  std::vector<const PeerReport*> behind;
  bool ahead = false;
  for (const PeerReport& peer : peers) {
    if (peer.state == PeerReport::State::kSilent) silent.push_back(peer.rank);
    if (peer.state == PeerReport::State::kGone) gone.push_back(peer.rank);
    if (peer.state != PeerReport::State::kAnswers) continue;
    ahead |= progress(peer.activity) > progress(own);
    if (progress(peer.activity) < progress(own)) behind.push_back(&peer);
  }
  // A rank that is behind may itself be waiting for a silent one.
  const char* const lag = silent.empty() ? "has not arrived" : "is behind, too";
  std::vector<std::string> parts;
  parts.reserve(behind.size() + 2);
  for (const PeerReport* peer : behind)
    parts.push_back(fmt::format("rank {} {} (it is at {})", peer->rank, lag, position_text(peer->activity)));
  if (!silent.empty()) {
    parts.insert(parts.begin(), fmt::format("{} {} not respond (stopped, or the host is cut off)", ranks_text(silent),
                                            silent.size() == 1 ? "does" : "do"));
  }
  if (!gone.empty()) {
    parts.push_back(fmt::format("{} {} exited", ranks_text(gone), gone.size() == 1 ? "has" : "have"));
  }
  if (parts.empty()) {
    parts.emplace_back(ahead ? "the other ranks are ahead of this one"
                             : "every rank responds and none is behind: check the network between them");
  }
  return fmt::format("{}; this rank is at {}", fmt::join(parts, "; "), position_text(own));
}

// ---- client side ----

namespace {

int milliseconds_until(Instant deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(static_cast<int>(left.count()), 0);
}

// A request in flight.
struct Request {
  int rank = 0;
  FileDescriptor socket{};
  bool sent = false;
  bool pending = false;  // waiting for the connection or for the answer
  bool failed = false;   // the connection was refused, or closed without an answer
  std::string answer{};
};

// Sends the line, or reads a part of the answer; called when the socket is ready.
void advance(Request& request, const std::string& line, bool expects_answer) {
  if (!request.sent) {
    const ssize_t put = ::send(request.socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
    if (put < 0) {
      request.pending = false;
      request.failed = true;
      return;
    }
    request.sent = true;  // a line fits into an empty socket buffer
    request.pending = expects_answer;
    return;
  }
  std::array<char, kMaxLineLength> buffer{};
  const ssize_t got = ::recv(request.socket.get(), buffer.data(), buffer.size(), 0);
  if (got > 0) request.answer.append(buffer.data(), static_cast<size_t>(got));
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    request.pending = false;
    request.failed = request.answer.empty();
  } else if (request.answer.ends_with('\n')) {
    request.pending = false;
  }
}

// Sends `line` to all peers except `skipped` concurrently, and waits for the answers until `timeout`.
std::vector<Request> send_to_all(const std::vector<PeerAddress>& peers, std::optional<int> skipped,
                                 const std::string& line, bool expects_answer, milliseconds timeout) {
  std::vector<Request> requests;
  for (int rank = 0; rank < static_cast<int>(peers.size()); ++rank) {
    if (rank == skipped) continue;
    const PeerAddress& peer = peers[static_cast<size_t>(rank)];
    Result<FileDescriptor> socket = start_connect(peer.host, peer.port);
    Request request{.rank = rank, .pending = socket.has_value(), .failed = !socket.has_value()};
    if (socket) request.socket = std::move(*socket);
    requests.push_back(std::move(request));
  }
  const Instant deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    std::vector<pollfd> polled;
    std::vector<Request*> owners;
    for (Request& request : requests) {
      if (!request.pending) continue;
      polled.push_back({request.socket.get(), static_cast<short>(request.sent ? POLLIN : POLLOUT), 0});
      owners.push_back(&request);
    }
    if (polled.empty() || ::poll(polled.data(), polled.size(), milliseconds_until(deadline)) <= 0) return requests;
    for (size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents != 0) advance(*owners[i], line, expects_answer);
    }
  }
}

// Members of an unexpected type are read as absent.
std::string string_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
int64_t integer_member(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

PeerReport to_report(const Request& request) {
  PeerReport report{.rank = request.rank, .state = PeerReport::State::kSilent, .activity = {}};
  const Json json = Json::parse(request.answer, nullptr, false);
  if (request.failed) {
    report.state = PeerReport::State::kGone;
  } else if (json.is_object()) {
    report.state = PeerReport::State::kAnswers;
    report.activity = {string_member(json, "phase"), integer_member(json, "step"), integer_member(json, "collective")};
  }
  return report;
}

std::string to_single_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, kMaxLineLength - 2);
}

}  // namespace

std::string PeerMonitor::diagnose_peers(milliseconds timeout) {
  std::vector<PeerReport> reports;
  // This rank is queried, too: once it has answered itself, it has read every message that was sent to it before.
  for (const Request& request : send_to_all(peers_, std::nullopt, "?\n", /*expects_answer=*/true, timeout)) {
    if (request.rank != rank_) reports.push_back(to_report(request));
  }
  std::string diagnosis = diagnose(activity_(), reports);
  {
    const std::lock_guard lock(mutex_);
    if (final_message_) return fmt::format("{}; {}", *final_message_, diagnosis);
  }
  report_exit("gave up: " + diagnosis, timeout / 10);
  return diagnosis;
}

void PeerMonitor::report_exit(const std::string& message, milliseconds timeout) const {
  const std::string line = to_single_line(fmt::format("!rank {} {}", rank_, message)) + "\n";
  send_to_all(peers_, rank_, line, /*expects_answer=*/false, timeout);
}

// ---- server side ----

namespace {

// Reads the line of a request; nullopt if it is too long or does not arrive in time.
std::optional<std::string> read_line(int descriptor) {
  const Instant deadline = std::chrono::steady_clock::now() + kReadTimeout;
  std::string line;
  while (line.size() < kMaxLineLength) {
    pollfd readable{descriptor, POLLIN, 0};
    if (::poll(&readable, 1, milliseconds_until(deadline)) <= 0) return std::nullopt;
    char next = 0;
    if (::recv(descriptor, &next, 1, 0) <= 0) return std::nullopt;
    if (next == '\n') return line;
    line += next;
  }
  return std::nullopt;
}

}  // namespace

Result<std::unique_ptr<PeerMonitor>> PeerMonitor::start(int rank, ActivitySource activity) {
  ASSIGN_OR_RETURN(const Listener listener, listen_on(0));
  return std::unique_ptr<PeerMonitor>(new PeerMonitor(rank, std::move(activity), listener));
}

PeerMonitor::PeerMonitor(int rank, ActivitySource activity, Listener listener)
    : rank_(rank),
      activity_(std::move(activity)),
      listener_(listener.descriptor),
      stop_(::eventfd(0, EFD_CLOEXEC)),
      port_(listener.port),
      thread_([this] { serve(); }) {}

PeerMonitor::~PeerMonitor() {
  const uint64_t one = 1;
  (void)!::write(stop_.get(), &one, sizeof one);
  thread_.join();
}

void PeerMonitor::serve() {
  for (;;) {
    std::array<pollfd, 2> polled = {pollfd{stop_.get(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0}};
    if (::poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
    if (polled[0].revents != 0) return;
    if ((polled[1].revents & POLLIN) == 0) continue;
    const FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() >= 0) answer(connection);
  }
}

void PeerMonitor::answer(const FileDescriptor& connection) {
  const std::optional<std::string> line = read_line(connection.get());
  if (line && line->starts_with('!')) {
    const std::lock_guard lock(mutex_);
    if (!final_message_) final_message_ = line->substr(1);
  } else if (line == "?") {
    const PeerActivity now = activity_();
    const std::string text =
        Json{{"phase", now.phase}, {"step", now.step}, {"collective", now.collective}}.dump() + "\n";
    (void)!::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
}

}  // namespace oarlock
