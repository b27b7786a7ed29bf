#include "common/http/server.h"

#include <fmt/format.h>
#include <httplib.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "common/endpoint.h"

namespace oarlock {
namespace {

constexpr size_t kThreads = 2;
// For one read or write of a peer. The server's end waits for the connections it has.
constexpr auto kReadPatience = std::chrono::seconds(2);
constexpr auto kWritePatience = std::chrono::seconds(10);

HttpResponse plain(int status, std::string text) { return {status, "text/plain; charset=utf-8", std::move(text)}; }

HttpResponse answer(const HttpRoutes& routes, const HttpServerOptions& options, const httplib::Request& request) {
  if (request.method != "GET") return plain(405, "only GET is served here\n");
  const auto route = routes.find(request.path);
  if (route == routes.end()) return plain(404, "not found\n");
  if (options.refuse) {
    if (auto no = options.refuse(route->first, request.get_header_value("Authorization"))) return *std::move(no);
  }
  const size_t query = request.target.find('?');
  return route->second(query == std::string::npos ? "" : request.target.substr(query + 1));
}

// Reads the file anew for each connection, so that a renewed certificate is shown without a restart. 1: go on.
int take_certificate(SSL* connection, void* file) {
  const char* name = static_cast<const std::string*>(file)->c_str();
  const bool taken = SSL_use_certificate_chain_file(connection, name) == 1 &&
                     SSL_use_PrivateKey_file(connection, name, SSL_FILETYPE_PEM) == 1;
  return taken ? 1 : 0;
}

std::unique_ptr<httplib::Server> make_server(std::string& certificate) {
  if (certificate.empty()) return std::make_unique<httplib::Server>();
  return std::make_unique<httplib::SSLServer>([&certificate](SSL_CTX& context) {
    SSL_CTX_set_min_proto_version(&context, TLS1_2_VERSION);
    SSL_CTX_set_cert_cb(&context, take_certificate, &certificate);
    return true;
  });
}

}  // namespace

struct HttpServer::Impl {
  Impl(HttpRoutes given_routes, HttpServerOptions given_options)
      : routes(std::move(given_routes)), options(std::move(given_options)), server(make_server(options.certificate)) {
    server->new_task_queue = [] { return new httplib::ThreadPool(kThreads); };
    // A connection is closed after its answer: an idle one would hold one of the threads.
    server->set_keep_alive_max_count(1);
    server->set_keep_alive_timeout(kReadPatience.count());  // also until the first byte
    server->set_read_timeout(kReadPatience);
    server->set_write_timeout(kWritePatience);
    // Of itself it shares a port with other servers that do so (SO_REUSEPORT).
    server->set_socket_options([](int socket) {
      const int yes = 1;
      const int no = 0;
      ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
      ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);  // "::" is IPv4, too, whatever sysctl says
    });
    server->set_pre_routing_handler([this](const httplib::Request& request, httplib::Response& response) {
      HttpResponse out;
      try {
        out = answer(routes, options, request);
      } catch (const std::exception& error) {  // the boundary of a request
        out = plain(500, std::string(error.what()) + "\n");
      }
      response.status = out.status;
      response.set_content(out.body, out.content_type);
      return httplib::Server::HandlerResponse::Handled;
    });
  }

  ~Impl() {
    server->stop();
    if (thread.joinable()) thread.join();
  }

  // The port; -1 where it cannot be had.
  int listen(const std::string& address, int port) {
    const int bound = port == 0 ? server->bind_to_any_port(address) : server->bind_to_port(address, port) ? port : -1;
    if (bound < 0) return -1;
    thread = std::thread([this] {
      server->listen_after_bind();
      ended = true;
    });
    // stop() does nothing before the thread has come to listening.
    while (!server->is_running() && !ended) std::this_thread::yield();
    return bound;
  }

  const HttpRoutes routes;
  HttpServerOptions options;
  std::unique_ptr<httplib::Server> server;
  std::atomic<bool> ended = false;
  std::thread thread;
};

HttpServer::HttpServer(std::unique_ptr<Impl> impl, int port) : impl_(std::move(impl)), port_(port) {}

HttpServer::~HttpServer() = default;

Result<std::unique_ptr<HttpServer>> HttpServer::start(const std::string& address, int port, const HttpRoutes& routes,
                                                      const HttpServerOptions& options) {
  std::vector<std::string> addresses = {address};
  if (address == "::") addresses.emplace_back("0.0.0.0");  // a kernel without IPv6
  for (const std::string& candidate : addresses) {
    auto impl = std::make_unique<Impl>(routes, options);
    if (const int bound = impl->listen(candidate, port); bound >= 0)
      return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl), bound));
  }
  return fail(ExitCode::kUnavailable,
              fmt::format("cannot listen on {} for metrics: the port is in use or not allowed; choose another port",
                          endpoint(address, port)));
}

}  // namespace oarlock
