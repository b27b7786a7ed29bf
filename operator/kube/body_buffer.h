// Where cpprest's threads and the calling thread meet. For cpprest_transport.cc alone: it includes cpprest's headers.
#pragma once

#include <cpprest/astreambuf.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "operator/kube/transport.h"

namespace oarlock::kube {

namespace streams = Concurrency::streams;

// Counts the exchanges that cpprest still works on, so that the transport outlives them.
class InFlight {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    ++count_;
  }
  void leave() {
    const std::lock_guard lock(mutex_);
    --count_;
    changed_.notify_all();
  }
  bool wait_empty(std::chrono::steady_clock::duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return count_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

// One request and its answer. A stream's pieces are handed over, and all work with them is the
// caller's. The body of an ordinary answer is collected here, so that the caller is woken once: a switch from thread to
// thread costs as much as parsing the answer.
struct Exchange {
  explicit Exchange(size_t body_limit) : limit(body_limit) {}

  const size_t limit;  // of the body that is collected; 0: pieces are handed over
  std::mutex mutex;
  std::condition_variable changed;
  std::optional<Response> head;    // status and Retry-After, once the headers are there
  const uint8_t* bytes = nullptr;  // a piece of body, valid until `consumed` is set
  size_t size = 0;
  std::optional<pplx::task_completion_event<size_t>> consumed;
  std::string body;       // what was collected
  bool too_long = false;  // there is more than `limit`
  bool given_up = false;  // nobody listens any more: bytes are thrown away
  bool done = false;
  std::string error;  // of cpprest, when done; empty: complete

  // Is there something for the calling thread? With the mutex held.
  bool calls() const { return done || too_long || (bytes != nullptr && head); }
};

// The response's body. cpprest reads on when a piece's task completes, so a slow reader of a stream slows the sender
// down and nothing is buffered.
class BodyBuffer final : public streams::details::streambuf_state_manager<uint8_t> {
 public:
  explicit BodyBuffer(std::shared_ptr<Exchange> exchange)
      : streambuf_state_manager<uint8_t>(std::ios_base::out), exchange_(std::move(exchange)) {}

  bool can_seek() const override { return false; }
  bool has_size() const override { return false; }
  size_t buffer_size(std::ios_base::openmode) const override { return 0; }
  void set_buffer_size(size_t, std::ios_base::openmode) override {}
  size_t in_avail() const override { return 0; }
  pos_type getpos(std::ios_base::openmode) const override { return static_cast<pos_type>(traits::eof()); }
  pos_type seekpos(pos_type, std::ios_base::openmode) override { return static_cast<pos_type>(traits::eof()); }
  pos_type seekoff(off_type, std::ios_base::seekdir, std::ios_base::openmode) override {
    return static_cast<pos_type>(traits::eof());
  }
  bool acquire(uint8_t*& pointer, size_t& count) override {
    pointer = nullptr;
    count = 0;
    return false;
  }
  void release(uint8_t*, size_t) override {}

 protected:
  pplx::task<size_t> _putn(const uint8_t* pointer, size_t count) override {
    const std::lock_guard lock(exchange_->mutex);
    if (exchange_->given_up) return pplx::task_from_result(count);
    if (exchange_->limit > 0) {
      collect(pointer, count);
      return pplx::task_from_result(count);
    }
    exchange_->bytes = pointer;
    exchange_->size = count;
    exchange_->consumed.emplace();
    if (exchange_->calls()) exchange_->changed.notify_all();
    return pplx::create_task(*exchange_->consumed);
  }
  pplx::task<bool> _sync() override { return pplx::task_from_result(true); }

  // It is written to by putn alone.
  pplx::task<int_type> _putc(uint8_t) override { return eof(); }
  pplx::task<int_type> _bumpc() override { return eof(); }
  int_type _sbumpc() override { return traits::eof(); }
  pplx::task<int_type> _getc() override { return eof(); }
  int_type _sgetc() override { return traits::eof(); }
  pplx::task<int_type> _nextc() override { return eof(); }
  pplx::task<int_type> _ungetc() override { return eof(); }
  pplx::task<size_t> _getn(uint8_t*, size_t) override { return pplx::task_from_result<size_t>(0); }
  size_t _scopy(uint8_t*, size_t) override { return 0; }
  uint8_t* _alloc(size_t) override { return nullptr; }
  void _commit(size_t) override {}

 private:
  void collect(const uint8_t* pointer, size_t count) {
    if (exchange_->body.size() + count <= exchange_->limit) {
      exchange_->body.append(reinterpret_cast<const char*>(pointer), count);
    } else {
      exchange_->too_long = exchange_->given_up = true;
      exchange_->changed.notify_all();
    }
  }
  static pplx::task<int_type> eof() { return pplx::task_from_result<int_type>(traits::eof()); }
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace oarlock::kube
