#include "operator/shell/progress_poller.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/endpoint.h"

namespace oarlock::control {
namespace {

constexpr size_t kMaxAnswer = 64u << 10;

// A pod is not to be trusted with the operator's memory.
class SmallBody final : public kube::ByteSink {
 public:
  bool write(std::string_view bytes) override {
    if (text.size() + bytes.size() > kMaxAnswer) return false;
    text += bytes;
    return true;
  }
  std::string text;
};

bool says_the_same(RankStatus a, const RankStatus& b) {
  a.updated_at = b.updated_at;
  return a == b;
}

}  // namespace

ProgressPoller::ProgressPoller(ProgressOptions options, Connect connect, OnChange on_change,
                               std::shared_ptr<const Clock> clock)
    : options_(options), connect_(std::move(connect)), on_change_(std::move(on_change)), clock_(std::move(clock)) {}

ProgressPoller::~ProgressPoller() { stop(); }

void ProgressPoller::start() {
  for (int i = 0; i < options_.threads; ++i) {
    threads_.emplace_back([this](const std::stop_token& stop) { run(stop); });
  }
}

void ProgressPoller::stop() {
  for (std::jthread& thread : threads_) thread.request_stop();
  threads_.clear();
}

void ProgressPoller::watch(const kube::ObjectKey& job, const std::string& uid, const std::string& host, int port) {
  const std::string url = "http://" + endpoint(host, port);
  const std::lock_guard lock(mutex_);
  Target& target = targets_[job];
  if (target.uid == uid && target.url == url) return;
  if (target.uid != uid) target.heard.said.reset();
  target.heard.asked.reset();
  target.uid = uid;
  target.url = url;
  target.wait = usual_interval();
  target.due = clock_->steady();
  ++watches_;
  changed_.notify_one();
}

void ProgressPoller::pause(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  if (const auto it = targets_.find(job); it != targets_.end()) it->second.url.clear();
}

void ProgressPoller::forget(const kube::ObjectKey& job) {
  const std::lock_guard lock(mutex_);
  targets_.erase(job);
}

Heard ProgressPoller::latest(const kube::ObjectKey& job, const std::string& uid) const {
  const std::lock_guard lock(mutex_);
  const auto it = targets_.find(job);
  return it == targets_.end() || it->second.uid != uid ? Heard() : it->second.heard;
}

size_t ProgressPoller::watched() const {
  const std::lock_guard lock(mutex_);
  return static_cast<size_t>(
      std::count_if(targets_.begin(), targets_.end(), [](const auto& entry) { return !entry.second.url.empty(); }));
}

std::chrono::milliseconds ProgressPoller::usual_interval() const {
  const double fair = 1000.0 * static_cast<double>(targets_.size()) / options_.rate;
  return std::max(options_.interval, std::chrono::milliseconds(static_cast<int64_t>(fair)));
}

std::optional<RankStatus> ProgressPoller::ask(const std::string& url, const std::string& uid,
                                              const std::stop_token& stop) const {
  const std::shared_ptr<kube::Transport> transport = connect_(url);
  if (transport == nullptr) return std::nullopt;
  SmallBody body;
  const std::string target = fmt::format("{}?uid={}", kStatusPath, uid);
  const auto response = transport->stream({.method = "GET", .target = target, .body = "", .content_type = ""}, body,
                                          {options_.timeout, options_.timeout}, stop);
  if (!response || response->status != 200) return std::nullopt;
  return rank_status_from_json(body.text);
}

void ProgressPoller::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (!stop.stop_requested()) {
    const SteadyTime now = clock_->steady();
    auto next = targets_.end();
    for (auto it = targets_.begin(); it != targets_.end(); ++it) {
      const Target& target = it->second;
      if (target.url.empty() || target.asking) continue;
      if (next == targets_.end() || target.due < next->second.due) next = it;
    }
    if (next == targets_.end()) {
      changed_.wait(lock, stop, [&, seen = watches_] { return watches_ != seen; });
      continue;
    }
    if (next->second.due > now) {
      changed_.wait_for(lock, stop, next->second.due - now, [&, seen = watches_] { return watches_ != seen; });
      continue;
    }
    next->second.asking = true;
    const kube::ObjectKey job = next->first;
    const std::string uid = next->second.uid;
    const std::string url = next->second.url;
    const SystemTime asked_at = clock_->now();
    lock.unlock();
    std::optional<RankStatus> said = ask(url, uid, stop);
    lock.lock();
    const auto it = targets_.find(job);
    if (it == targets_.end()) continue;
    Target& target = it->second;
    target.asking = false;
    if (target.uid != uid || target.url != url) continue;  // it became another while we asked
    target.wait =
        said ? usual_interval() : std::min(target.wait * 2, std::max(options_.longest_interval, options_.interval));
    target.due = clock_->steady() + target.wait;
    target.heard.asked = {asked_at, said.has_value()};
    if (!said) continue;
    const bool is_news = !target.heard.said || !says_the_same(*said, *target.heard.said);
    target.heard.said = std::move(said);
    if (!is_news) continue;
    lock.unlock();
    on_change_(job);
    lock.lock();
  }
}

}  // namespace oarlock::control
