#include "operator/kube/http/connection_pool.h"

#include <utility>

namespace oarlock::kube {
namespace {

constexpr auto kIdleLimit = std::chrono::seconds(30);  // kube-apiserver closes after 90

}  // namespace

std::unique_ptr<Connection> ConnectionPool::take() {
  const std::lock_guard lock(mutex_);
  drop_old(std::chrono::steady_clock::now());
  while (!idle_.empty()) {
    std::unique_ptr<Connection> last = std::move(idle_.back().connection);
    idle_.pop_back();
    if (last->is_reusable()) return last;
  }
  return nullptr;
}

void ConnectionPool::give_back(std::unique_ptr<Connection> connection) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  drop_old(now);
  idle_.push_back({std::move(connection), now});
}

void ConnectionPool::clear() {
  const std::lock_guard lock(mutex_);
  idle_.clear();
}

void ConnectionPool::drop_old(Time now) {
  while (!idle_.empty() && now - idle_.front().since > kIdleLimit) idle_.pop_front();
}

}  // namespace oarlock::kube
