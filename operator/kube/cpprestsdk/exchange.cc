#include "operator/kube/cpprestsdk/exchange.h"

#include <utility>

namespace oarlock::kube {

void OpenRequests::add() {
  const std::lock_guard lock(mutex_);
  ++count_;
}

void OpenRequests::remove() {
  const std::lock_guard lock(mutex_);
  if (--count_ == 0) changed_.notify_all();
}

void OpenRequests::wait_until_none(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return count_ == 0; });
}

void Exchange::start(std::shared_ptr<OpenRequests> open) {
  open_ = std::move(open);
  open_->add();
}

void Exchange::set_head(ResponseHead head) {
  const std::lock_guard lock(mutex_);
  head_ = std::move(head);
  changed_.notify_all();
}

pplx::task<size_t> Exchange::offer(const uint8_t* data, size_t size) {
  const std::lock_guard lock(mutex_);
  if (abandoned_) return pplx::task_from_result(size);
  piece_ = {reinterpret_cast<const char*>(data), size};
  taken_.emplace();
  changed_.notify_all();
  return pplx::create_task(*taken_);
}

void Exchange::finish(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex_);
    error_ = std::move(error);
    finished_ = true;
    changed_.notify_all();
  }
  open_->remove();
}

Exchange::Event Exchange::wait(std::chrono::steady_clock::time_point until, const std::stop_token& cancel) {
  std::unique_lock lock(mutex_);
  // The first piece can arrive before the head: cpprestsdk delivers them through different tasks.
  const auto is_ready = [&] { return (taken_ && head_) || finished_; };
  const bool ready = changed_.wait_until(lock, cancel, until, is_ready);
  if (cancel.stop_requested()) return Event::kCancelled;
  if (!ready) return Event::kTimeout;
  return finished_ ? Event::kEnd : Event::kPiece;
}

void Exchange::take() {
  const std::lock_guard lock(mutex_);
  complete_piece();
}

void Exchange::abandon() {
  const std::lock_guard lock(mutex_);
  abandoned_ = true;
  complete_piece();  // a task that is never completed would keep the request, and with it this exchange, alive forever
}

void Exchange::complete_piece() {
  if (!taken_) return;
  const size_t size = std::exchange(piece_, {}).size();
  std::exchange(taken_, std::nullopt)->set(size);
}

ResponseBuffer::ResponseBuffer(std::shared_ptr<Exchange> exchange)
    : basic_producer_consumer_buffer(0), exchange_(std::move(exchange)) {}

pplx::task<size_t> ResponseBuffer::putn_nocopy(const uint8_t* data, size_t size) {
  return exchange_->offer(data, size);
}

}  // namespace oarlock::kube
