// The I/O of one call: its limits, the resolution of the host name, and byte streams between client and server (TCP,
// and TLS on top of another stream).
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/ssl/stream.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/error.hpp>
#include <chrono>
#include <cstddef>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "http/client/transport.h"

namespace oarlock::http {

// Deadline, idle limit and cancellation of one call of a Transport. Not thread-safe, except that other threads may
// request a stop through the stop token.
class CallLimits {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;

  // Starts both limits now.
  CallLimits(StreamLimits limits, std::stop_token cancel)
      : limits_(limits),
        cancel_(std::move(cancel)),
        end_(Clock::now() + limits.total),
        idle_end_(Clock::now() + limits.idle) {}

  // Fails with kCancelled, kDeadline or kIdle if one of the limits has been reached.
  TransportResult<void> check() const {
    if (cancel_.stop_requested()) return failed(TransportErrorKind::kCancelled, "cancelled");
    const Time now = Clock::now();
    if (now >= end_) {
      return failed(TransportErrorKind::kDeadline,
                    fmt::format("no complete response within {} ms", limits_.total.count()));
    }
    if (now >= idle_end_) {
      return failed(TransportErrorKind::kIdle, fmt::format("no data received for {} ms", limits_.idle.count()));
    }
    return {};
  }

  // Time at which the next limit will be reached.
  Time next() const { return std::min(end_, idle_end_); }
  // Time at which the call must have ended.
  Time end() const { return end_; }
  const std::stop_token& cancel() const { return cancel_; }

  // Restarts the idle limit, because data was transferred.
  void restart_idle() { idle_end_ = Clock::now() + limits_.idle; }

 private:
  const StreamLimits limits_;
  const std::stop_token cancel_;
  const Time end_;
  Time idle_end_;
};

// ---- Name resolution ---------------------------------------------------------------------------------------------

// Resolves one host name within the limits of a call. Thread-safe.
//
// getaddrinfo(3) cannot be interrupted and may block for as long as the system's resolver is configured to retry. Asio
// runs it in a thread that the destructor of the io_context joins; a blocked lookup would therefore delay the end of
// the call and of the program. This class runs each lookup in a detached thread that owns everything it uses: the name,
// the function and, through a shared pointer, the result. A caller waits for the result on a condition variable until
// its own deadline or cancellation, and then abandons the lookup. The thread never refers to the Resolver, and ends
// with the process at the latest. Concurrent calls share a lookup. A lookup that has not ended after kSharedLookup is
// abandoned in favor of a new one, so that a resolver that blocks holds at most one thread per kSharedLookup.
class Resolver {
 public:
  using Endpoint = boost::asio::ip::tcp::endpoint;
  using Endpoints = std::vector<Endpoint>;
  // Blocks until the lookup has ended. An empty result means that the name cannot be resolved.
  using Lookup = std::function<Endpoints(const std::string& host, const std::string& port)>;

  static constexpr std::chrono::seconds kSharedLookup{10};

  Resolver(std::string host, std::string port, Lookup lookup = lookup_with_system);

  // Returns at least one endpoint. Fails with kConnect if the name cannot be resolved, or with the error of the limits.
  // An IP address needs no lookup.
  TransportResult<Endpoints> resolve(const CallLimits& limits);

 private:
  struct Pending;

  static Endpoints lookup_with_system(const std::string& host, const std::string& port);
  // Returns the lookup in progress, or starts one.
  TransportResult<std::shared_ptr<Pending>> pending_lookup();

  const std::string host_;
  const std::string port_;
  const Lookup lookup_;
  std::mutex mutex_;
  std::shared_ptr<Pending> pending_;  // the most recent lookup; null before the first
};

// ---- Byte streams ------------------------------------------------------------------------------------------------

using ErrorCode = boost::beast::error_code;

// The error of a channel that has returned the bytes that it may return.
inline constexpr auto kReadLimitReached = boost::asio::error::message_size;

// A byte stream that models Boost's SyncReadStream and SyncWriteStream, so that Beast's HTTP algorithms and Asio's
// ssl::stream work on it. Not thread-safe. After an error other than would_block, a channel can only be destroyed.
class Channel {
 public:
  using executor_type = boost::asio::io_context::executor_type;
  using lowest_layer_type = Channel;

  virtual ~Channel() = default;
  Channel() = default;
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  virtual executor_type get_executor() = 0;
  lowest_layer_type& lowest_layer() { return *this; }

  // Transfers at least one byte, or sets `error`: to eof at the orderly end of the stream, and to would_block if the
  // channel must not wait and nothing can be transferred now. The overloads without `error` only complete the concepts;
  // they throw boost::system::system_error.
  template <typename MutableBuffers>
  size_t read_some(const MutableBuffers& buffers, ErrorCode& error) {
    const auto buffer = first_of<boost::asio::mutable_buffer>(buffers);
    if (read_limit_ == 0 && buffer.size() != 0) {
      error = kReadLimitReached;
      return 0;
    }
    const size_t size = read(boost::asio::buffer(buffer, read_limit_), error);
    read_limit_ -= std::min(size, read_limit_);
    return size;
  }
  template <typename MutableBuffers>
  size_t read_some(const MutableBuffers& buffers) {
    return or_throw([&](ErrorCode& error) { return read_some(buffers, error); });
  }
  template <typename ConstBuffers>
  size_t write_some(const ConstBuffers& buffers, ErrorCode& error) {
    return write(first_of<boost::asio::const_buffer>(buffers), error);
  }
  template <typename ConstBuffers>
  size_t write_some(const ConstBuffers& buffers) {
    return or_throw([&](ErrorCode& error) { return write_some(buffers, error); });
  }

  // Limits the bytes that read_some() returns from now on; afterwards it sets kReadLimitReached.
  void limit_reads(size_t bytes) { read_limit_ = bytes; }

  // Announces the end of the stream to the peer if the protocol requires it (TLS: close_notify). Never waits.
  virtual void close() = 0;

 protected:
  virtual size_t read(boost::asio::mutable_buffer buffer, ErrorCode& error) = 0;
  virtual size_t write(boost::asio::const_buffer buffer, ErrorCode& error) = 0;

 private:
  template <typename Buffer, typename Buffers>
  static Buffer first_of(const Buffers& buffers) {
    for (auto it = boost::asio::buffer_sequence_begin(buffers); it != boost::asio::buffer_sequence_end(buffers); ++it) {
      if (const Buffer buffer = *it; buffer.size() != 0) return buffer;
    }
    return Buffer();
  }
  template <typename Call>
  static size_t or_throw(Call call) {
    ErrorCode error;
    const size_t size = call(error);
    if (error) throw boost::system::system_error(error);
    return size;
  }

  size_t read_limit_ = std::numeric_limits<size_t>::max();
};

// TCP connection. The thread of the call runs the channel's own io_context until an operation has ended, so that a
// request needs no switch to another thread. The timer of Beast's stream enforces the limits of the call, and a stop
// callback cancels the operation. Every read and write of the layers above ends here; nothing else waits for the
// network.
class TcpChannel final : public Channel {
 public:
  TcpChannel() = default;
  ~TcpChannel() override;

  // Limit of the bytes that a server may send between two calls, which are TLS session tickets, key updates and a
  // close_notify. A server that sends more would otherwise occupy the thread that checks or closes the connection,
  // which has no deadline.
  static constexpr size_t kMaxBytesBetweenCalls = 32u << 10;

  // Allows operations to wait, within the limits of a call, until end_call(), and lifts the limit of reads. Called by
  // the thread of the call. The limits must outlive the call.
  void begin_call(CallLimits& limits);
  void end_call();

  // Tries the endpoints in order. Each gets an equal share of the remaining time, so that an address that does not
  // respond leaves time for the next one. Fails with kConnect, or with the error of the limits.
  TransportResult<void> connect(const Resolver::Endpoints& endpoints);

  executor_type get_executor() override { return io_.get_executor(); }
  void close() override {}

 private:
  using Stream = boost::beast::basic_stream<boost::asio::ip::tcp, executor_type>;
  struct Cancel {
    TcpChannel* channel;
    void operator()() const;
  };

  size_t read(boost::asio::mutable_buffer buffer, ErrorCode& error) override;
  size_t write(boost::asio::const_buffer buffer, ErrorCode& error) override;
  // Runs one asynchronous operation to its end, which is at the limits of the call or at `until`.
  template <typename Start>
  size_t run(Start start, ErrorCode& error, CallLimits::Time until = CallLimits::Time::max());
  ErrorCode connect_to(const Resolver::Endpoint& endpoint, CallLimits::Time until);

  boost::asio::io_context io_{1};  // used by one thread at a time
  Stream stream_{io_};
  CallLimits* limits_ = nullptr;  // null outside of a call; operations then do not wait
  size_t left_between_calls_ = kMaxBytesBetweenCalls;
  std::optional<std::stop_callback<Cancel>> on_cancel_;
};

// TLS on top of another channel.
class TlsChannel final : public Channel {
 public:
  // OpenSSL handles records without data (session tickets, key updates, alerts) within a read or write. Such records
  // restart the idle limit of a call, so that their number is limited: a read or write fails with kReadLimitReached
  // when it has received this much without transferring data. A record has at most 17 KiB.
  static constexpr size_t kMaxBytesWithoutData = 128u << 10;

  // Keeps a reference to the OpenSSL context.
  TlsChannel(std::unique_ptr<Channel> next, SSL_CTX* context);

  // Performs the client's part of the handshake. The subjectAltName of the certificate must contain `name`, a host name
  // or IP address; the common name is ignored. `peer` is the term for the other side in messages: "server" or "proxy".
  // Fails with kTls, or with the error of the limits.
  TransportResult<void> handshake(const std::string& name, const std::string& peer, const CallLimits& limits);

  executor_type get_executor() override { return next_->get_executor(); }
  void close() override;

 private:
  size_t read(boost::asio::mutable_buffer buffer, ErrorCode& error) override {
    next_->limit_reads(kMaxBytesWithoutData);
    return stream_.read_some(boost::asio::buffer(buffer), error);
  }
  size_t write(boost::asio::const_buffer buffer, ErrorCode& error) override {
    next_->limit_reads(kMaxBytesWithoutData);
    return stream_.write_some(boost::asio::buffer(buffer), error);
  }

  const std::unique_ptr<Channel> next_;
  boost::asio::ssl::stream<Channel&> stream_;
};

}  // namespace oarlock::http
