// TCP connection whose waits end at the limits of a call.
#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <optional>
#include <stop_token>

#include "operator/kube/http/call_limits.h"
#include "operator/kube/http/channel.h"
#include "operator/kube/http/resolver.h"

namespace oarlock::kube {

// The thread of the call runs the channel's own io_context until the operation has ended, so that a request costs no
// switch to another thread. The timer of Beast's stream enforces the limits, and a stop callback cancels the operation.
// Every read and write of the layers above ends here; nothing else waits for the network.
class TcpChannel final : public Channel {
 public:
  TcpChannel() = default;
  ~TcpChannel() override;

  // Operations may wait from now on, within the limits of this call, until release(). Called by the thread of the call;
  // the limits must outlive it.
  void begin_call(CallLimits& limits);
  void end_call();

  // Tries the endpoints in turn; each gets its share of the time that is left, and so an address that does not answer
  // leaves time for the next. kConnect, or the error of the limits.
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
  // Runs one asynchronous operation to its end. `until`: an earlier limit than those of the call.
  template <typename Start>
  size_t run(Start start, ErrorCode& error, CallLimits::Time until = CallLimits::Time::max());
  ErrorCode connect_to(const Resolver::Endpoint& endpoint, CallLimits::Time until);

  boost::asio::io_context io_{1};  // one thread at a time
  Stream stream_{io_};
  CallLimits* limits_ = nullptr;  // null: no call, operations do not wait
  std::optional<std::stop_callback<Cancel>> on_cancel_;
};

}  // namespace oarlock::kube
