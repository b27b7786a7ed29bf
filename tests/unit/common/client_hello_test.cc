#include "http/request_head.h"

#include <gtest/gtest.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>

namespace oarlock {
namespace {

constexpr size_t kLimit = 8192;

// The first bytes that OpenSSL sends.
std::string client_hello() {
  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context(SSL_CTX_new(TLS_client_method()), SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context.get()), SSL_free);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl.get());
  std::string bytes(BIO_ctrl_pending(out), '\0');
  BIO_read(out, bytes.data(), static_cast<int>(bytes.size()));
  return bytes;
}

std::string record(const std::string& payload, char type = 22) {
  return std::string{type, 3, 1, static_cast<char>(payload.size() >> 8), static_cast<char>(payload.size())} + payload;
}

// A ClientHello with this many bytes after its header.
std::string message(size_t size) {
  return std::string{1, static_cast<char>(size >> 16), static_cast<char>(size >> 8), static_cast<char>(size)} +
         std::string(size, 'x');
}

std::string in_records_of(const std::string& text, size_t size) {
  std::string out;
  for (size_t at = 0; at < text.size(); at += size) out += record(text.substr(at, size));
  return out;
}

TEST(ClientHello, IsCompleteWithItsLastByte) {
  for (const std::string& hello : {client_hello(), record(message(300)), record(message(0)),
                                   in_records_of(message(300), 7), in_records_of(message(300), 1)}) {
    for (size_t i = 0; i < hello.size(); ++i)
      EXPECT_EQ(inspect_client_hello(hello.substr(0, i), kLimit), ClientHelloState::kIncomplete) << i;
    EXPECT_EQ(inspect_client_hello(hello, kLimit), ClientHelloState::kComplete);
    EXPECT_EQ(inspect_client_hello(hello + "more", kLimit), ClientHelloState::kComplete);
  }
}

TEST(ClientHello, RejectsOtherProtocolsAndMessages) {
  const std::string server_hello = record(std::string{2} + message(300).substr(1));
  for (const std::string& bytes : {std::string("GET / HTTP/1.1"), std::string("\x80\x2e\x01\x03\x01"),
                                   record(message(300), 21), server_hello, record(""), std::string("\x16\x02")})
    EXPECT_EQ(inspect_client_hello(bytes, kLimit), ClientHelloState::kInvalid) << bytes;
}

TEST(ClientHello, RejectsAnnouncedAndSentBytesAboveTheLimit) {
  EXPECT_EQ(inspect_client_hello(record(message(131072).substr(0, 4)), kLimit), ClientHelloState::kInvalid);
  const std::string fragments = in_records_of(message(2000), 1);  // 6 bytes for each
  EXPECT_EQ(inspect_client_hello(fragments.substr(0, kLimit), kLimit), ClientHelloState::kIncomplete);
  EXPECT_EQ(inspect_client_hello(fragments.substr(0, kLimit + 1), kLimit), ClientHelloState::kInvalid);
}

}  // namespace
}  // namespace oarlock
