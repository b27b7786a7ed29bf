#include "cli/launch/preflight_link.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/launch/launcher_link.h"
#include "cli/launch/polling.h"

namespace oarlock::launch {
namespace {

constexpr int kRoundTrips = 9;
// Bytes that arrive earlier do not count: those that waited for this node, and those of TCP's slow start.
constexpr auto kWarmUp = std::chrono::milliseconds(100);
constexpr auto kStreamTime = std::chrono::milliseconds(500);
constexpr size_t kMaxStreamBytes = size_t{256} << 20;  // ends the stream of a fast network earlier
constexpr size_t kBufferBytes = size_t{1} << 18;
constexpr auto kRoundLimit = std::chrono::seconds(5);
constexpr size_t kMaxCandidates = 16;  // connections that have not sent the hello
constexpr int kMegabit = 1'000'000;

double seconds_of(SteadyTime::duration time) { return std::chrono::duration<double>(time).count(); }

// Whether a call on a non-blocking socket may succeed later.
bool is_temporary(ssize_t result) { return result < 0 && (errno == EAGAIN || errno == EINTR || errno == ENOTCONN); }

class LinkMeasurement {
 public:
  LinkMeasurement(const LinkOptions& options, const Clock& clock)
      : options_(options),
        clock_(clock),
        hello_(fmt::format("{} {}\n", options.token, options.round.round)),
        out_(begin_connect(options.to)),
        buffer_(kBufferBytes, '\0') {}

  std::optional<double> run(const PreflightWait& wait) {
    const SteadyTime end = clock_.steady() + kRoundLimit;
    while (!is_finished() && clock_.steady() < end) {
      std::vector<pollfd> fds = descriptors();
      if (!wait(fds, std::min(end, stream_end_.value_or(end)))) return std::nullopt;
      if (!has_met_peer_) find_peer(fds);
      if (is_ready(out_.get(), fds)) send_some();
      if (is_ready(in_.get(), fds)) receive_some();
      if (stream_end_ && *stream_end_ <= clock_.steady()) finish_stream();
    }
    return value_;
  }

 private:
  struct Candidate {
    FileDescriptor socket;
    std::string hello;
  };

  // The connection of the other node is closed when that node has finished.
  bool is_finished() const { return !out_.open() && has_met_peer_ && !in_.open(); }

  std::vector<pollfd> descriptors() const {
    std::vector<pollfd> fds;
    if (!has_met_peer_) fds.push_back({options_.listener, POLLIN, 0});
    for (const Candidate& candidate : candidates_) fds.push_back({candidate.socket.get(), POLLIN, 0});
    if (in_.open()) fds.push_back({in_.get(), POLLIN, 0});
    const bool awaits_echo = options_.round.is_latency && ping_sent_at_;
    if (out_.open()) fds.push_back({out_.get(), static_cast<int16_t>(awaits_echo ? POLLIN : POLLOUT), 0});
    return fds;
  }

  // ---- Sending ----

  void send_some() {
    if (sent_hello_ < hello_.size()) {
      const ssize_t sent = ::send(out_.get(), hello_.data() + sent_hello_, hello_.size() - sent_hello_, MSG_NOSIGNAL);
      if (sent > 0) sent_hello_ += static_cast<size_t>(sent);
      if (sent <= 0 && !is_temporary(sent)) out_.close();
      return;
    }
    if (options_.round.is_latency) return ping();
    const ssize_t sent = ::send(out_.get(), buffer_.data(), buffer_.size(), MSG_NOSIGNAL);
    if (sent <= 0 && !is_temporary(sent)) out_.close();  // the other node has received enough
  }

  void ping() {
    char byte = 0;
    if (!ping_sent_at_) {
      ping_sent_at_ = clock_.steady();
      const ssize_t sent = ::send(out_.get(), &byte, 1, MSG_NOSIGNAL);
      if (sent <= 0) ping_sent_at_.reset();
      if (sent <= 0 && !is_temporary(sent)) out_.close();
      return;
    }
    const ssize_t received = ::recv(out_.get(), &byte, 1, 0);
    if (received <= 0) {
      if (!is_temporary(received)) out_.close();
      return;
    }
    trips_.push_back(1000 * seconds_of(clock_.steady() - *std::exchange(ping_sent_at_, std::nullopt)));
    if (trips_.size() < kRoundTrips) return;
    std::ranges::nth_element(trips_, trips_.begin() + kRoundTrips / 2);
    value_ = trips_[kRoundTrips / 2];
    out_.close();
  }

  // ---- Receiving ----

  // Any host may connect to the listener: the other node is the one that sends the hello.
  void find_peer(const std::vector<pollfd>& fds) {
    for (Candidate& candidate : candidates_) {
      if (!has_met_peer_ && is_ready(candidate.socket.get(), fds)) receive_hello(candidate);
    }
    if (has_met_peer_) return candidates_.clear();
    std::erase_if(candidates_, [](const Candidate& candidate) { return !candidate.socket.open(); });
    if (!is_ready(options_.listener, fds)) return;
    FileDescriptor socket(::accept4(options_.listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket.open()) return;
    set_link_options(socket);
    if (candidates_.size() == kMaxCandidates) candidates_.erase(candidates_.begin());
    candidates_.push_back({std::move(socket), ""});
  }

  // Byte by byte, because the bytes after it belong to the measurement.
  void receive_hello(Candidate& candidate) {
    for (char byte = 0; byte != '\n';) {
      const ssize_t received = ::recv(candidate.socket.get(), &byte, 1, 0);
      if (is_temporary(received)) return;
      if (received <= 0 || candidate.hello.size() == hello_.size()) return candidate.socket.close();
      candidate.hello += byte;
    }
    has_met_peer_ = recovery::is_equal_secret(candidate.hello, hello_);
    if (has_met_peer_) in_ = std::move(candidate.socket);
    candidate.socket.close();
  }

  void receive_some() {
    const ssize_t received = ::recv(in_.get(), buffer_.data(), options_.round.is_latency ? 1 : buffer_.size(), 0);
    if (received <= 0) {
      if (!is_temporary(received)) in_.close();
      return;
    }
    if (options_.round.is_latency) {
      if (::send(in_.get(), buffer_.data(), 1, MSG_NOSIGNAL) != 1) in_.close();
      return;
    }
    const SteadyTime now = clock_.steady();
    if (!stream_end_) {
      stream_begin_ = now + kWarmUp;
      stream_end_ = stream_begin_ + kStreamTime;
    }
    if (now < stream_begin_) return;
    streamed_ += static_cast<size_t>(received);
    if (streamed_ >= kMaxStreamBytes) finish_stream();
  }

  void finish_stream() {
    value_ = static_cast<double>(streamed_) * 8 / kMegabit / seconds_of(clock_.steady() - stream_begin_);
    stream_end_.reset();
    in_.close();
  }

  const LinkOptions& options_;
  const Clock& clock_;
  const std::string hello_;  // of both connections: all nodes are in the same round
  FileDescriptor out_;
  FileDescriptor in_;
  std::vector<Candidate> candidates_;
  std::string buffer_;
  size_t sent_hello_ = 0;
  bool has_met_peer_ = false;
  std::optional<SteadyTime> ping_sent_at_;
  std::vector<double> trips_;  // milliseconds
  SteadyTime stream_begin_;
  std::optional<SteadyTime> stream_end_;
  size_t streamed_ = 0;
  std::optional<double> value_;
};

}  // namespace

std::optional<double> measure_link(const LinkOptions& options, const PreflightWait& wait, const Clock& clock) {
  return LinkMeasurement(options, clock).run(wait);
}

}  // namespace oarlock::launch
