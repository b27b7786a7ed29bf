#include "tests/support/tinyproxy.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <fstream>
#include <stdexcept>

namespace oarlock::test {
namespace {

namespace net = boost::asio;
using net::ip::tcp;

int free_port(const std::string& host) {
  net::io_context io;
  return tcp::acceptor(io, {net::ip::make_address(host), 0}).local_endpoint().port();
}

bool accepts(const std::string& host, int port) {
  net::io_context io;
  boost::system::error_code error;
  tcp::socket(io).connect({net::ip::make_address(host), static_cast<unsigned short>(port)}, error);
  return !error;
}

}  // namespace

// Tinyproxy cannot choose a port itself, and a free one may be taken before it listens: then it ends, and another is
// tried.
Tinyproxy::Tinyproxy(const std::string& host, const std::string& user, const std::string& password)
    : host_(host), user_(user), password_(password) {
  for (int i = 0; i < 5; ++i) {
    if (start(free_port(host))) return;
  }
  throw std::runtime_error("tinyproxy does not start: " + program_->out() + program_->err() + log());
}

bool Tinyproxy::start(int port) {
  port_ = port;
  const std::filesystem::path configuration = directory_.path() / "tinyproxy.conf";
  std::ofstream(configuration) << "Port " << port << "\nListen " << host_ << "\nTimeout 60\nMaxClients 50\n"
                               << "LogFile \"" << (directory_.path() / "log").string() << "\"\nLogLevel Connect\n"
                               << "BasicAuth " << user_ << " " << password_ << "\n";
  program_ = std::make_unique<Program>(std::vector<std::string>{OARLOCK_TINYPROXY, "-d", "-c", configuration.string()});
  return eventually([&] { return accepts(host_, port) || !alive(program_->pid()); }) && alive(program_->pid());
}

std::string Tinyproxy::url(const std::string& credentials) const {
  const bool is_ipv6 = host_.find(':') != std::string::npos;
  return "http://" + (credentials.empty() ? "" : credentials + "@") + (is_ipv6 ? "[" + host_ + "]" : host_) + ":" +
         std::to_string(port_);
}

std::string Tinyproxy::log() const { return content(directory_.path() / "log"); }

std::string kubeconfig_with_proxy(const std::string& kubeconfig, const std::string& proxy,
                                  const std::filesystem::path& directory) {
  std::string text = content(kubeconfig);
  const std::string key = "    server: ";
  const size_t at = text.find(key);
  if (at == std::string::npos) throw std::runtime_error(kubeconfig + " has no server");
  text.insert(at, "    proxy-url: '" + proxy + "'\n");
  const std::filesystem::path path = directory / "kubeconfig-with-proxy";
  std::ofstream(path) << text;
  return path.string();
}

}  // namespace oarlock::test
