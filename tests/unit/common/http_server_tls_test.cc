// The server's side of TLS: deadlines, limits, and a certificate that is renewed.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/ec.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <mutex>

#include "http/server.h"
#include "tests/support/certificates.h"
#include "tests/support/raw_client.h"
#include "tests/support/temporary_directory.h"

namespace oarlock {
namespace {

using namespace std::chrono_literals;
using test::RawClient;
using testing::HasSubstr;
using testing::StartsWith;

// A connection with a completed handshake; the certificate is not verified.
class TlsClient {
 public:
  // `alpn`: the protocols that the ClientHello offers, in its own format.
  explicit TlsClient(int port, int newest_version = TLS1_3_VERSION, const std::string& alpn = "",
                     const RawClient::Options& options = {})
      : tcp_(port, options) {
    SSL_CTX_set_max_proto_version(context_.get(), newest_version);
    SSL_CTX_set_security_level(context_.get(), 0);  // permits TLS 1.1, which the server has to refuse
    ssl_.reset(SSL_new(context_.get()));
    if (!alpn.empty())
      SSL_set_alpn_protos(ssl_.get(), reinterpret_cast<const unsigned char*>(alpn.data()),
                          static_cast<unsigned>(alpn.size()));
    SSL_set_fd(ssl_.get(), tcp_.fd());
    is_connected_ = SSL_connect(ssl_.get()) == 1;
  }
  bool is_connected() const { return is_connected_; }
  bool is_closed_within(std::chrono::milliseconds time) const { return tcp_.is_closed_within(time); }

  std::string common_name() const {
    const std::unique_ptr<X509, decltype(&X509_free)> peer(SSL_get1_peer_certificate(ssl_.get()), X509_free);
    char name[100] = "";
    if (peer) X509_NAME_get_text_by_NID(X509_get_subject_name(peer.get()), NID_commonName, name, sizeof name);
    return name;
  }

  // Sends up to `count` KeyUpdate messages, and returns how many were sent before the connection was closed.
  int update_keys(int count) {
    for (int i = 0; i < count; ++i) {
      if (SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) != 1 || SSL_do_handshake(ssl_.get()) != 1) return i;
    }
    return count;
  }

  // The response, and "close_notify" after it if the server has sent that. The request is sent in records of this size.
  std::string get(const std::string& target, size_t record = 4096) {
    if (!send_request(target, record)) return "";
    std::string out = read();
    if (SSL_get_error(ssl_.get(), last_read_) == SSL_ERROR_ZERO_RETURN) out += "close_notify";
    return out;
  }

  bool send_request(const std::string& target, size_t record = 4096) {
    const std::string request = "GET " + target + " HTTP/1.1\r\nHost: localhost\r\n\r\n";
    for (size_t at = 0; at < request.size(); at += record) {
      const std::string piece = request.substr(at, record);
      if (SSL_write(ssl_.get(), piece.data(), static_cast<int>(piece.size())) <= 0) return false;
    }
    return true;
  }

  // At least so many bytes of the response, or all of it.
  std::string read(size_t bytes = std::string::npos) {
    std::string out;
    char buffer[4096];
    while (out.size() < bytes && (last_read_ = SSL_read(ssl_.get(), buffer, sizeof buffer)) > 0)
      out.append(buffer, static_cast<size_t>(last_read_));
    return out;
  }

  bool has_data_within(std::chrono::milliseconds time) const {
    pollfd entry{.fd = tcp_.fd(), .events = POLLIN, .revents = 0};
    return ::poll(&entry, 1, static_cast<int>(time.count())) == 1;
  }

 private:
  RawClient tcp_;
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_{SSL_CTX_new(TLS_client_method()), SSL_CTX_free};
  std::unique_ptr<SSL, decltype(&SSL_free)> ssl_{nullptr, SSL_free};
  bool is_connected_ = false;
  int last_read_ = 0;  // the result of SSL_read()
};

class HttpServerTls : public testing::Test {
 protected:
  HttpServerTls() { std::signal(SIGPIPE, SIG_IGN); }  // OpenSSL writes to closed connections
  // A new file, as a kubelet makes it: two writes within a tick of the kernel's clock give a file the same times.
  void write(const std::string& text) {
    std::ofstream(file_ + ".new") << text;
    std::filesystem::rename(file_ + ".new", file_);
  }
  void write_identity(const std::string& name) { write(authority_.issue(name, "IP:127.0.0.1").both()); }
  int serve(const HttpLimits& limits = {}) {
    auto server = HttpServer::start("127.0.0.1", 0, routes_, {.certificate = file_, .limits = limits});
    if (!server) throw std::runtime_error(server.error().message);
    server_ = std::move(*server);
    return server_->port();
  }

  const test::TemporaryDirectory directory_;
  const std::string file_ = (directory_.path() / "server.pem").string();
  const test::Authority authority_{"authority"};
  const std::string large_ = std::string(3 << 20, 'x');
  const HttpRoutes routes_ = {{"/large", [this](const std::string&) { return HttpResponse{.body = large_}; }}};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpServerTls, SendsTheWholeResponseAndCloseNotify) {
  write_identity("one");
  const int port = serve();
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION}) {
    TlsClient client(port, version);
    ASSERT_TRUE(client.is_connected());
    const std::string response = client.get("/large");
    EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_TRUE(response.ends_with(large_ + "close_notify"));
  }
  EXPECT_FALSE(TlsClient(port, TLS1_1_VERSION).is_connected());
}

TEST_F(HttpServerTls, RenewedCertificateIsUsedForNewConnections) {
  write_identity("one");
  const int port = serve();
  TlsClient before(port);
  EXPECT_EQ(before.common_name(), "one");
  write_identity("two");
  EXPECT_EQ(TlsClient(port).common_name(), "two");
  write("no certificate");
  EXPECT_EQ(TlsClient(port).common_name(), "two") << "the previous one is kept";
  std::filesystem::remove(file_);
  EXPECT_EQ(TlsClient(port).common_name(), "two");
  write_identity("three");
  EXPECT_EQ(TlsClient(port).common_name(), "three");
  EXPECT_THAT(before.get("/nothing"), StartsWith("HTTP/1.1 404"));
}

// Standard input is a pipe without a writer, while this object exists.
class SilentStandardInput {
 public:
  SilentStandardInput() : previous_(::dup(0)) {
    if (::pipe(pipe_) != 0 || ::dup2(pipe_[0], 0) != 0) throw std::runtime_error("no pipe");
  }
  ~SilentStandardInput() {
    ::dup2(previous_, 0);
    for (const int fd : {previous_, pipe_[0], pipe_[1]}) ::close(fd);
  }
  SilentStandardInput(const SilentStandardInput&) = delete;
  SilentStandardInput& operator=(const SilentStandardInput&) = delete;

 private:
  int previous_;
  int pipe_[2] = {-1, -1};
};

std::string encrypted_key() {
  const std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<BIO, decltype(&BIO_free)> bio(BIO_new(BIO_s_mem()), BIO_free);
  const unsigned char phrase[] = {'p', 'a', 's', 's'};
  PEM_write_bio_PrivateKey(bio.get(), key.get(), EVP_aes_128_cbc(), phrase, sizeof phrase, nullptr, nullptr);
  std::string text(BIO_ctrl_pending(bio.get()), '\0');
  BIO_read(bio.get(), text.data(), static_cast<int>(text.size()));
  return text;
}

TEST_F(HttpServerTls, DoesNotPromptForThePassPhraseOfAKey) {
  write_identity("one");
  const int port = serve();
  const SilentStandardInput input;
  const std::string key = encrypted_key();
  ASSERT_THAT(key, testing::HasSubstr("ENCRYPTED"));
  write(authority_.issue("two", "IP:127.0.0.1").certificate + key);
  EXPECT_EQ(TlsClient(port).common_name(), "one") << "the previous one is kept";
  write_identity("three");
  EXPECT_EQ(TlsClient(port).common_name(), "three");
}

TEST_F(HttpServerTls, HandshakeHasADeadline) {
  write_identity("one");
  const int port = serve({.request_time = 2s});
  const RawClient silent(port);
  const RawClient partial(port);
  partial.send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));  // the first bytes of a ClientHello
  const TlsClient idle(port);
  EXPECT_TRUE(silent.is_closed_within());
  EXPECT_TRUE(partial.is_closed_within());
  EXPECT_TRUE(idle.is_closed_within(20s));
}

TEST_F(HttpServerTls, GarbageEndsTheHandshake) {
  write_identity("one");
  const RawClient plain(serve());
  plain.send("GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_TRUE(plain.is_closed_within());
}

TEST_F(HttpServerTls, HangingHandshakesYieldToNewConnections) {
  write_identity("one");
  const int port = serve({.request_time = 600s});
  std::vector<RawClient> hanging;
  for (size_t i = 0; i <= HttpLimits{}.connections_per_peer; ++i) hanging.emplace_back(port);
  EXPECT_THAT(TlsClient(port).get("/nothing"), HasSubstr("404"));
  EXPECT_TRUE(hanging.front().is_closed_within());
  EXPECT_FALSE(hanging.back().is_closed());
}

// More addresses than there may be sessions; none of them ever completes its ClientHello.
TEST_F(HttpServerTls, IncompleteHellosNeedNoSession) {
  write_identity("one");
  const int port = serve({.request_time = 600s, .connections = 128, .tls_sessions = 4, .tls_sessions_per_peer = 2});
  const TlsClient idle(port);
  ASSERT_TRUE(idle.is_connected());
  std::vector<RawClient> hanging;
  for (int i = 0; i < 100; ++i) {
    hanging.emplace_back(port, RawClient::Options{.from = fmt::format("127.0.1.{}", 1 + i)});
    hanging.back().send(std::string("\x16\x03\x01\x02\x00\x01\x00", 7));
  }
  EXPECT_THAT(TlsClient(port).get("/nothing"), HasSubstr("404"));
  EXPECT_FALSE(idle.is_closed_within(0s));
  EXPECT_FALSE(hanging.front().is_closed());
}

TEST_F(HttpServerTls, SessionsOfOneClientYieldToAnother) {
  write_identity("one");
  const int port = serve({.request_time = 600s, .tls_sessions = 4, .tls_sessions_per_peer = 4});
  std::vector<std::unique_ptr<TlsClient>> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(std::make_unique<TlsClient>(port));
  EXPECT_THAT(TlsClient(port).get("/nothing"), HasSubstr("404"));
  EXPECT_TRUE(idle.front()->is_closed_within(20s));
  EXPECT_FALSE(idle.back()->is_closed_within(0s));
}

// A client that reads slowly keeps its session, although clients that do not read replace each other's.
TEST_F(HttpServerTls, ReadersWithoutProgressYieldFirst) {
  write_identity("one");
  const int port = serve({.request_time = 600s, .response_time = 600s, .tls_sessions = 4, .response_bytes = 100 << 20});
  const auto request_large = [&](const std::string& from) {
    auto client =
        std::make_unique<TlsClient>(port, TLS1_3_VERSION, "", RawClient::Options{.from = from, .receive_buffer = 4096});
    EXPECT_TRUE(client->send_request("/large"));
    EXPECT_TRUE(client->has_data_within(20s));
    return client;
  };
  const auto reader = request_large("127.0.2.1");
  std::string received;
  std::vector<std::unique_ptr<TlsClient>> others;
  for (int i = 0; i < 8; ++i) {
    others.push_back(request_large(fmt::format("127.0.1.{}", 1 + i)));
    received += reader->read(300 << 10);  // more than the kernel buffers, so the server writes meanwhile
  }
  received += reader->read();
  EXPECT_GT(received.size(), large_.size());
  EXPECT_TRUE(others.front()->is_closed_within(20s));
}

// A ClientHello of more than 5 KiB, which the server reads in several pieces.
TEST_F(HttpServerTls, LongHelloWithinTheLimitIsAccepted) {
  write_identity("one");
  const int port = serve();
  std::string protocols;
  for (int i = 0; i < 80; ++i) protocols += "\x3f" + std::string(0x3f, 'x');
  for (const int version : {TLS1_2_VERSION, TLS1_3_VERSION})
    EXPECT_THAT(TlsClient(port, version, protocols).get("/nothing"), HasSubstr("404"));
}

TEST_F(HttpServerTls, LargeHellosAreRejected) {
  write_identity("one");
  const RawClient client(serve());
  client.send(std::string("\x16\x03\x01\x40\x00\x01\x01\x00\x00", 9));  // it announces 64 KiB
  EXPECT_TRUE(client.is_closed_within());
}

TEST_F(HttpServerTls, EndlessKeyUpdatesEndTheConnection) {
  write_identity("one");
  const int port = serve({.request_time = 600s});
  TlsClient client(port);
  ASSERT_TRUE(client.is_connected());
  EXPECT_LT(client.update_keys(1'000'000), 1'000'000) << "more than all buffers hold";
  EXPECT_TRUE(client.is_closed_within(20s));
  TlsClient other(port);
  EXPECT_EQ(other.update_keys(3), 3);
  EXPECT_THAT(other.get("/nothing"), HasSubstr("404"));
}

TEST_F(HttpServerTls, RequestInManySmallRecordsIsRead) {
  write_identity("one");
  const int port = serve();
  EXPECT_THAT(TlsClient(port).get("/nothing", 4), HasSubstr("404"));
}

TEST_F(HttpServerTls, UnusableCertificateIsReportedOnce) {
  write_identity("one");
  std::mutex mutex;
  std::vector<std::string> reasons;
  auto server = HttpServer::start("127.0.0.1", 0, routes_,
                                  {.certificate = file_, .on_unusable_certificate = [&](const std::string& reason) {
                                     const std::lock_guard lock(mutex);
                                     reasons.push_back(reason);
                                   }});
  ASSERT_TRUE(server) << server.error().message;
  const int port = (*server)->port();
  const auto reported = [&] {
    const std::lock_guard lock(mutex);
    return reasons;
  };
  EXPECT_THAT(reported(), testing::IsEmpty());
  write("no certificate");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(TlsClient(port).common_name(), "one");
  EXPECT_THAT(reported(), testing::SizeIs(1));
  write(authority_.issue("two", "IP:127.0.0.1").certificate + encrypted_key());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(TlsClient(port).common_name(), "one");
  EXPECT_THAT(reported(), testing::SizeIs(2));
  EXPECT_THAT(reported(), testing::Each(testing::Not(testing::IsEmpty())));
  write_identity("three");
  EXPECT_EQ(TlsClient(port).common_name(), "three");
  EXPECT_THAT(reported(), testing::SizeIs(2));
}

}  // namespace
}  // namespace oarlock
