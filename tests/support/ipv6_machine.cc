#include "tests/support/ipv6_machine.h"

#include <sched.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <system_error>

#include "kube/auth/kubeconfig.h"
#include "tests/support/program.h"

namespace oarlock::test {
namespace {

void check(bool good, const std::string& what) {
  if (!good) throw std::runtime_error(what + ": " + std::generic_category().message(errno));
}

void write(const std::filesystem::path& file, const std::string& text) {
  std::ofstream stream(file);
  stream << text << std::flush;
  check(stream.good(), file.string());
}

}  // namespace

void leave_ipv4() {
  const std::string user = std::to_string(::getuid());
  const std::string group = std::to_string(::getgid());
  check(::unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWNET) == 0, "namespaces of our own");
  write("/proc/self/setgroups", "deny");
  write("/proc/self/uid_map", "0 " + user + " 1");
  write("/proc/self/gid_map", "0 " + group + " 1");
  check(::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0, "mounts of our own");
  Program ip({"/bin/sh", "-ec", "ip link set lo up; ip addr del 127.0.0.1/8 dev lo"});
  if (ip.wait() != 0) throw std::runtime_error("loopback without IPv4: " + ip.err());
}

void become_service_account(const std::string& authority, const std::string& token, const std::string& namespace_name) {
  check(::mount("tmpfs", "/run", "tmpfs", 0, nullptr) == 0, "a /run of our own");
  const std::filesystem::path directory = kube::kServiceAccountDirectory;  // /var/run is /run
  std::filesystem::create_directories(directory);
  write(directory / "ca.crt", authority);
  write(directory / "token", token);
  write(directory / "namespace", namespace_name);
}

}  // namespace oarlock::test
