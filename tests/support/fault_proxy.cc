#include "tests/support/fault_proxy.h"

#include <fmt/format.h>

#include <algorithm>

#include "kube/client/list_watch.h"

namespace oarlock::test {
namespace {

using namespace std::chrono_literals;
using Connection = HostileServer::Connection;
using Received = HostileServer::Received;

constexpr char kGone[] =
    R"({"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired","message":"too old resource version"}})"
    "\n";

std::string content_type_of(const Received& request) {
  const std::string key = "Content-Type:";
  const size_t at = request.head.find(key);
  if (at == std::string::npos) return "";
  const size_t begin = request.head.find_first_not_of(' ', at + key.size());
  return request.head.substr(begin, request.head.find("\r\n", begin) - begin);
}

// "pods" of "/api/v1/namespaces/x/pods?watch=true".
std::string resource_of(const std::string& target) {
  const std::string path = target.substr(0, target.find('?'));
  return path.substr(path.rfind('/') + 1);
}

std::string with_parameter(std::string target, const std::string& name, const std::string& value) {
  const size_t at = target.find(name + "=");
  if (at == std::string::npos) return target + (target.find('?') == std::string::npos ? "?" : "&") + name + "=" + value;
  const size_t begin = at + name.size() + 1;
  const size_t end = std::min(target.find('&', begin), target.size());
  return target.replace(begin, end - begin, value);
}

std::string chunk(std::string_view text) { return fmt::format("{:x}\r\n{}\r\n", text.size(), text); }

}  // namespace

FaultProxy::FaultProxy(http::Transport& upstream)
    : upstream_(upstream),
      server_([this](auto& connection, const auto& request) { return handle(connection, request); }) {}

void FaultProxy::on_write(Decide decide, Written written) {
  const std::lock_guard lock(mutex_);
  decide_ = std::move(decide);
  written_hook_ = std::move(written);
}

int FaultProxy::writes() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(written_.size());
}

std::vector<std::string> FaultProxy::written() const {
  const std::lock_guard lock(mutex_);
  return written_;
}

int FaultProxy::questions(const std::string& target) const {
  const std::lock_guard lock(mutex_);
  const auto found = questions_.find(target);
  return found == questions_.end() ? 0 : found->second;
}

void FaultProxy::freeze(const std::string& resource) {
  const std::lock_guard lock(mutex_);
  frozen_ = resource;
}

void FaultProxy::thaw(bool lose) {
  const std::lock_guard lock(mutex_);
  for (Watch* watch : watches_) watch->lose = lose && frozen(watch->resource);
  frozen_.reset();
  changed_.notify_all();
}

void FaultProxy::show_the_past(const std::string& resource_version) {
  const std::lock_guard lock(mutex_);
  past_ = resource_version;
  past_frozen_ = true;
}

void FaultProxy::present() {
  const std::lock_guard lock(mutex_);
  past_.clear();
  past_frozen_ = false;
  changed_.notify_all();
}

void FaultProxy::refuse_watch_list() {
  const std::lock_guard lock(mutex_);
  refuses_watch_list_ = true;
}

void FaultProxy::inject(const std::string& resource, const std::string& line) {
  const std::lock_guard lock(mutex_);
  for (Watch* watch : watches_) {
    if (watch->resource == resource) watch->injected.push_back(line);
  }
}

int FaultProxy::watches(const std::string& resource) const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(
      std::count_if(watches_.begin(), watches_.end(), [&](const Watch* watch) { return watch->resource == resource; }));
}

bool FaultProxy::frozen(const std::string& resource) const {
  return past_frozen_ || (frozen_ && (frozen_->empty() || *frozen_ == resource));
}

bool FaultProxy::forward(Connection& connection, const http::Request& request) {
  const auto answer = upstream_.send(request, 30s, {});
  if (!answer) return false;
  connection.answer(answer->status, answer->body);
  return true;
}

// The head of a watch is sent before the response of the API server.
bool FaultProxy::is_served(const std::string& target) {
  const auto answer = upstream_.send(
      {.method = "GET", .target = target.substr(0, target.find('?')) + "?limit=1", .body = "", .content_type = ""}, 30s,
      {});
  return answer && answer->ok();
}

bool FaultProxy::handle(Connection& connection, const Received& received) {
  http::Request request{.method = received.method,
                        .target = received.target,
                        .body = received.body,
                        .content_type = content_type_of(received)};
  if (received.method == "GET") {
    if (received.target.find("watch=true") != std::string::npos) return watch(connection, received);
    std::string past;
    {
      const std::lock_guard lock(mutex_);
      past = past_;
      ++questions_[received.target];
    }
    const bool is_list = received.target.find("labelSelector") != std::string::npos ||
                         received.target.find("/trainingjobs?") != std::string::npos;
    if (!past.empty() && is_list) {
      request.target =
          with_parameter(with_parameter(request.target, "resourceVersion", past), "resourceVersionMatch", "Exact");
    }
    return forward(connection, request);
  }
  if (resource_of(received.target) == "events" || received.target.find("/events/") != std::string::npos)
    return forward(connection, request);
  int number = 0;
  Decide decide;
  Written hook;
  {
    const std::lock_guard lock(mutex_);
    written_.push_back(received.method + " " + received.target);
    number = static_cast<int>(written_.size());
    decide = decide_;
    hook = written_hook_;
  }
  const Fate fate = decide ? decide(number, received) : Fate::kPass;
  if (fate == Fate::kLost) return false;
  const auto answer = upstream_.send(request, 30s, {});
  if (hook) hook(number);
  if (!answer || fate == Fate::kAnswerLost) return false;
  connection.answer(answer->status, answer->body);
  return true;
}

bool FaultProxy::watch(Connection& connection, const Received& received) {
  Watch self{.resource = resource_of(received.target), .injected = {}, .lose = false};
  {
    const std::lock_guard lock(mutex_);
    const bool refuses = refuses_watch_list_ || !past_.empty();
    if (refuses && received.target.find("sendInitialEvents") != std::string::npos) {
      connection.answer(422, R"({"kind":"Status","code":422,"reason":"Invalid","message":"no WatchList here"})");
      return true;
    }
    watches_.push_back(&self);
  }
  if (self.resource == "podgroups" && !is_served(received.target)) {
    connection.answer(404, "404 page not found");
    const std::lock_guard lock(mutex_);
    std::erase(watches_, &self);
    return true;
  }
  connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");

  // Forwards complete lines, so that a line can be inserted between two others.
  class Sink final : public http::ByteSink {
   public:
    Sink(FaultProxy& proxy, Watch& watch, Connection& connection)
        : proxy_(proxy), watch_(watch), connection_(connection) {}
    bool write(std::string_view bytes) override {
      return lines_.feed(bytes, [this](std::string_view line) { return pass(std::string(line) + "\n"); });
    }

   private:
    bool pass(const std::string& line) {
      std::vector<std::string> injected;
      bool lose = false;
      {
        std::unique_lock lock(proxy_.mutex_);
        while (proxy_.frozen(watch_.resource)) {
          if (connection_.stopping() || connection_.closed()) return false;
          proxy_.changed_.wait_for(lock, 20ms);
        }
        injected.swap(watch_.injected);
        lose = watch_.lose;
      }
      if (lose) {
        connection_.write(chunk(kGone) + "0\r\n\r\n");
        return false;
      }
      for (const std::string& one : injected) connection_.write(chunk(one));
      return connection_.write(chunk(line));
    }
    FaultProxy& proxy_;
    Watch& watch_;
    Connection& connection_;
    kube::LineSplitter lines_{8u << 20};
  } sink(*this, self, connection);

  // A thread checks whether the operator has closed the connection, because nothing is read from the stream.
  std::stop_source stop;
  std::jthread looker([&](const std::stop_token& done) {
    while (!done.stop_requested() && !connection.stopping() && !connection.closed()) std::this_thread::sleep_for(20ms);
    stop.request_stop();
  });
  const http::Request request{.method = "GET", .target = received.target, .body = "", .content_type = ""};
  const auto answer = upstream_.stream(request, sink, {.idle = 120s, .total = 900s}, stop.get_token());
  if (answer && answer->ok()) connection.write("0\r\n\r\n");
  const std::lock_guard lock(mutex_);
  std::erase(watches_, &self);
  return false;
}

}  // namespace oarlock::test
