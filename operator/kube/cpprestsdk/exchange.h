// Handover of one response from cpprestsdk's I/O thread to the thread that calls Transport. The I/O thread offers a
// piece of the body and reads the next one only after the caller has taken it, so at most one piece is buffered.
#pragma once

#include <cpprest/producerconsumerstream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

namespace oarlock::kube {

// Number of requests that cpprestsdk has not finished. Thread-safe.
class OpenRequests {
 public:
  void add();
  void remove();
  // Waits until no request is open, for at most `limit`.
  void wait_until_none(std::chrono::milliseconds limit);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int count_ = 0;
};

struct ResponseHead {
  int status = 0;
  std::optional<std::chrono::seconds> retry_after;  // at most a minute
};

// Thread-safe.
class Exchange {
 public:
  enum class Event { kPiece, kEnd, kTimeout, kCancelled };

  Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  // Counts the request as open until finish(). Called once, before the request is given to the library.
  void start(std::shared_ptr<OpenRequests> open);

  // Called by the I/O thread. The bytes passed to offer() stay valid until the returned task is complete. A null error
  // means that the response is complete.
  void set_head(ResponseHead head);
  pplx::task<size_t> offer(const uint8_t* data, size_t size);
  void finish(std::exception_ptr error);

  // Called by the calling thread. wait() returns at the next piece or the end of the response.
  Event wait(std::chrono::steady_clock::time_point until, const std::stop_token& cancel);
  const ResponseHead& head() const { return *head_; }  // valid after kPiece, and after kEnd without an error
  std::string_view piece() const { return piece_; }    // valid after kPiece, until take()
  void take();                                         // releases the piece
  std::exception_ptr error() const { return error_; }  // valid after kEnd
  // Drops the current and all further pieces, because the caller cancels the request.
  void abandon();

 private:
  void complete_piece();  // requires mutex_

  std::shared_ptr<OpenRequests> open_;  // null before start()
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::optional<ResponseHead> head_;
  std::string_view piece_;
  std::optional<pplx::task_completion_event<size_t>> taken_;  // of piece_; nullopt without a piece
  std::exception_ptr error_;
  bool finished_ = false;
  bool abandoned_ = false;
};

// The stream buffer to which cpprestsdk writes the body of a response. It overrides putn_nocopy() rather than _putn(),
// because the base class wraps the latter in a task that blocks the I/O thread after an error.
class ResponseBuffer final : public concurrency::streams::details::basic_producer_consumer_buffer<uint8_t> {
 public:
  explicit ResponseBuffer(std::shared_ptr<Exchange> exchange);

  pplx::task<size_t> putn_nocopy(const uint8_t* data, size_t size) override;

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace oarlock::kube
