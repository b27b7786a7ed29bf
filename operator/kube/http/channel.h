// A byte stream between client and server: TCP, or TLS on top of another channel. To Boost it is a SyncReadStream and a
// SyncWriteStream, and so Beast's HTTP algorithms and Asio's ssl::stream work on it.
#pragma once

#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/beast/core/error.hpp>
#include <cstddef>

namespace oarlock::kube {

using ErrorCode = boost::beast::error_code;

// Not thread-safe. After an error other than would_block, a channel can only be destroyed.
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

  // Transfers at least one byte, or sets `error`: eof at the orderly end of the stream, would_block if the channel may
  // not wait and nothing can be transferred now. Throws boost::system::system_error in the overloads without `error`,
  // which only complete the concepts.
  template <typename MutableBuffers>
  size_t read_some(const MutableBuffers& buffers, ErrorCode& error) {
    return read(first_of<boost::asio::mutable_buffer>(buffers), error);
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

  // Announces the end of the stream to the peer where the protocol requires it (TLS: close_notify). Never waits.
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
};

}  // namespace oarlock::kube
