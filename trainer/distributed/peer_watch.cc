#include "trainer/distributed/peer_watch.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;
using Instant = std::chrono::steady_clock::time_point;

constexpr size_t kLongestLine = 4096;
constexpr milliseconds kReadTimeout{500};  // of a question

int left_until(Instant deadline) {
  const auto left = std::chrono::duration_cast<milliseconds>(deadline - std::chrono::steady_clock::now());
  return std::max(static_cast<int>(left.count()), 0);
}

// A question under way.
struct Call {
  int rank = 0;
  FileDescriptor socket{};
  bool sent = false;
  bool open = false;  // still worth waiting for
  bool gone = false;
  std::string answer{};
};

// Sends what is to be sent, or reads; the call is closed when it is over.
void advance(Call& call, const std::string& line, bool wants_answer) {
  if (!call.sent) {
    const ssize_t put = ::send(call.socket.get(), line.data(), line.size(), MSG_NOSIGNAL);
    if (put < 0) {  // the connection was refused, or broke
      call.open = false;
      call.gone = true;
      return;
    }
    call.sent = true;  // a line fits into an empty buffer
    call.open = wants_answer;
    return;
  }
  std::array<char, kLongestLine> buffer{};
  const ssize_t got = ::recv(call.socket.get(), buffer.data(), buffer.size(), 0);
  if (got > 0) call.answer.append(buffer.data(), static_cast<size_t>(got));
  if (got < 0 && errno == EAGAIN) return;
  if (got <= 0) {
    call.open = false;
    call.gone = call.answer.empty();
  } else if (call.answer.ends_with('\n')) {
    call.open = false;
  }
}

// All peers at once, without `skipped`.
std::vector<Call> call_all(const std::vector<PeerAddress>& peers, std::optional<int> skipped, const std::string& line,
                           bool wants_answer, milliseconds patience) {
  std::vector<Call> calls;
  for (int rank = 0; rank < static_cast<int>(peers.size()); ++rank) {
    if (rank == skipped) continue;
    const PeerAddress& peer = peers[static_cast<size_t>(rank)];
    Result<FileDescriptor> socket = begin_to_reach(peer.host, peer.port);
    Call call{.rank = rank, .open = socket.has_value(), .gone = !socket.has_value()};
    if (socket) call.socket = std::move(*socket);
    calls.push_back(std::move(call));
  }
  const Instant deadline = std::chrono::steady_clock::now() + patience;
  for (;;) {
    std::vector<pollfd> waiting;
    std::vector<Call*> of;
    for (Call& call : calls) {
      if (!call.open) continue;
      waiting.push_back({call.socket.get(), static_cast<short>(call.sent ? POLLIN : POLLOUT), 0});
      of.push_back(&call);
    }
    if (waiting.empty() || ::poll(waiting.data(), waiting.size(), left_until(deadline)) <= 0) return calls;
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (waiting[i].revents != 0) advance(*of[i], line, wants_answer);
    }
  }
}

// Members of another type than expected are read as absent.
std::string text_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}
int64_t number_at(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<int64_t>() : 0;
}

PeerReport report_of(const Call& call) {
  PeerReport report{.rank = call.rank, .state = PeerReport::State::kSilent, .activity = {}};
  const Json json = Json::parse(call.answer, nullptr, false);
  if (call.gone) {
    report.state = PeerReport::State::kGone;
  } else if (json.is_object()) {
    report.state = PeerReport::State::kAnswers;
    report.activity = {text_at(json, "phase"), number_at(json, "step"), number_at(json, "collective")};
  }
  return report;
}

// One question; nothing where it is too long or too slow.
std::optional<std::string> read_line(int descriptor) {
  const Instant deadline = std::chrono::steady_clock::now() + kReadTimeout;
  std::string line;
  while (line.size() < kLongestLine) {
    pollfd readable{descriptor, POLLIN, 0};
    if (::poll(&readable, 1, left_until(deadline)) <= 0) return std::nullopt;
    char next = 0;
    if (::recv(descriptor, &next, 1, 0) <= 0) return std::nullopt;
    if (next == '\n') return line;
    line += next;
  }
  return std::nullopt;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, kLongestLine - 2);
}

}  // namespace

Result<std::unique_ptr<PeerWatch>> PeerWatch::start(int rank, ActivitySource activity) {
  const Result<Listener> listener = listen_on(0);
  if (!listener) return tl::make_unexpected(listener.error());
  return std::unique_ptr<PeerWatch>(new PeerWatch(rank, std::move(activity), *listener));
}

PeerWatch::PeerWatch(int rank, ActivitySource activity, Listener listener)
    : rank_(rank),
      activity_(std::move(activity)),
      listener_(listener.descriptor),
      wake_(::eventfd(0, EFD_CLOEXEC)),
      port_(listener.port),
      thread_([this] { serve(); }) {}

PeerWatch::~PeerWatch() {
  const uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
  thread_.join();
}

void PeerWatch::serve() {
  for (;;) {
    std::array<pollfd, 2> waiting = {pollfd{wake_.get(), POLLIN, 0}, pollfd{listener_.get(), POLLIN, 0}};
    if (::poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR) return;
    if (waiting[0].revents != 0) return;
    if ((waiting[1].revents & POLLIN) == 0) continue;
    const FileDescriptor connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (connection.get() >= 0) answer(connection);
  }
}

void PeerWatch::answer(const FileDescriptor& connection) {
  const std::optional<std::string> line = read_line(connection.get());
  if (line && line->starts_with('!')) {
    const std::lock_guard lock(mutex_);
    if (!told_) told_ = line->substr(1);
  } else if (line == "?") {
    const Activity now = activity_();
    const std::string text =
        Json{{"phase", now.phase}, {"step", now.step}, {"collective", now.collective}}.dump() + "\n";
    (void)!::send(connection.get(), text.data(), text.size(), MSG_NOSIGNAL);
  }
}

std::string PeerWatch::explain(milliseconds patience) {
  std::vector<PeerReport> reports;
  // This rank, too: when it has answered itself, it has read what it was told before.
  for (const Call& call : call_all(peers_, std::nullopt, "?\n", /*wants_answer=*/true, patience)) {
    if (call.rank != rank_) reports.push_back(report_of(call));
  }
  std::string diagnosis = diagnose(activity_(), reports);
  {
    const std::lock_guard lock(mutex_);
    if (told_) return fmt::format("{}; {}", *told_, diagnosis);
  }
  tell("gave up: " + diagnosis, patience / 10);
  return diagnosis;
}

void PeerWatch::tell(const std::string& message, milliseconds patience) const {
  const std::string line = one_line(fmt::format("!rank {} {}", rank_, message)) + "\n";
  call_all(peers_, rank_, line, /*wants_answer=*/false, patience);
}

}  // namespace oarlock
