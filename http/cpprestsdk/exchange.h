// One exchange of a request and its response with cpprestsdk: the handover of the response from the library's I/O
// thread to the thread that calls Transport, and the conversion of requests, response heads and errors. The I/O thread
// offers a piece of the body and reads the next one only after the caller has taken it, so at most one piece is
// buffered.
#pragma once

#include <cpprest/http_msg.h>
#include <cpprest/producerconsumerstream.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <string_view>

#include "http/client/transport.h"

namespace oarlock::http {

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

struct RequestHeaders {
  std::string host;
  std::string user_agent;
  std::string token;  // empty: none
  std::string token_scheme = "Bearer";
  std::vector<std::pair<std::string, std::string>> further;
};

// Fails with kRefused if the target or the token could end a line of the head.
TransportResult<web::http::http_request> make_request(const Request& request, const RequestHeaders& headers,
                                                      const std::shared_ptr<Exchange>& exchange);

struct InvalidResponse final : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Throws InvalidResponse if the length of the body is ambiguous, in which case the library would choose one.
ResponseHead parse_head(const web::http::http_response& response);

// Thrown by check_connection(), into cpprestsdk, before the library sends a request on a pooled connection that is no
// longer usable. The server has not seen the request.
struct StaleConnection final : std::runtime_error {
  StaleConnection() : std::runtime_error("the pooled connection is closed or holds unexpected data") {}
};

// Throws StaleConnection if the server has closed the connection or has sent data that belongs to no response. `handle`
// is the argument of cpprestsdk's native handle callback: a tcp::socket, or a TLS stream over one. A socket that is not
// open yet passes.
void check_connection(void* handle, bool is_tls);

bool is_stale(const std::exception_ptr& error);

// Converts an exception that cpprestsdk delivers. The text of the library's exception is the only indication of the
// phase in which a call failed.
TransportError to_transport_error(const std::exception_ptr& error, bool has_proxy);

}  // namespace oarlock::http
