// Clients that attack a server from separate loopback addresses, and the measurement of their effect.
#pragma once

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/measurement.h"
#include "tests/support/raw_client.h"

namespace oarlock::test {

struct Attack {
  std::string name;
  size_t clients = 1;
  std::string first{};     // sent by each new connection
  std::string repeated{};  // sent again after each period
  std::chrono::milliseconds period{10};
  int receive_buffer = 0;  // of the clients; nothing is read but the end of the connection
  size_t addresses = 20;   // at most 240
};

inline std::vector<Attack> all_attacks_on_http() {
  const std::string block(16 << 10, 'x');
  std::string fields;
  for (int i = 0; i < 1000; ++i) fields += fmt::format("X-{}: y\r\n", i);
  using std::chrono::milliseconds;
  return {
      {.name = "1,000 clients that trickle",
       .clients = 1000,
       .first = "",
       .repeated = "G",
       .period = milliseconds(1000)},
      {.name = "endless lines", .clients = 8, .first = "GET /", .repeated = block},
      {.name = "endless headers", .clients = 8, .first = "GET /metrics HTTP/1.1\r\n", .repeated = fields},
      {.name = "bodies of 1 GiB",
       .clients = 8,
       .first = "GET /metrics HTTP/1.1\r\nContent-Length: 1073741824\r\n\r\n",
       .repeated = block},
      {.name = "slow readers of /metrics",
       .clients = 64,
       .first = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
       .repeated = "",
       .receive_buffer = 4096},
      {.name = "320 slow readers with 5 addresses",
       .clients = 320,
       .first = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
       .receive_buffer = 4096,
       .addresses = 5},
      {.name = "HEAD /metrics without pause",
       .clients = 4,
       .first = "HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n",
       .period = milliseconds(1),
       .addresses = 1},
      {.name = "GET /healthz without pause",
       .clients = 4,
       .first = "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
       .period = milliseconds(1),
       .addresses = 1},
      {.name = "connections with 240 addresses", .clients = 300, .first = "G", .addresses = 240},
  };
}

// With OARLOCK_HOSTILE_ATTACK, those whose name contains its value.
inline std::vector<Attack> attacks_on_http() {
  std::vector<Attack> attacks = all_attacks_on_http();
  if (const char* part = std::getenv("OARLOCK_HOSTILE_ATTACK"))
    std::erase_if(attacks, [&](const Attack& attack) { return attack.name.find(part) == std::string::npos; });
  if (attacks.empty()) throw std::invalid_argument("OARLOCK_HOSTILE_ATTACK: no attack has such a name");
  return attacks;
}

// Runs one attack until its end. A connection that the server closes is opened again after a period.
class HostileClients {
 public:
  HostileClients(int port, Attack attack) : port_(port), attack_(std::move(attack)) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run(stop); });
  }
  size_t connections() const { return connections_; }

 private:
  void run(const std::stop_token& stop) {
    std::vector<std::optional<RawClient>> clients(attack_.clients);
    while (!stop.stop_requested()) {
      const auto next = std::chrono::steady_clock::now() + attack_.period;
      for (size_t i = 0; i < clients.size() && !stop.stop_requested(); ++i) act(clients[i], i);
      std::this_thread::sleep_until(next);
    }
  }
  void act(std::optional<RawClient>& client, size_t i) {
    if (client && !client->is_reset()) {
      if (!attack_.repeated.empty() && !client->try_send(attack_.repeated)) client.reset();
      return;
    }
    try {
      client.emplace(port_, RawClient::Options{.from = fmt::format("127.0.0.{}", 10 + i % attack_.addresses),
                                               .receive_buffer = attack_.receive_buffer});
      client->try_send(attack_.first);
      ++connections_;
    } catch (const std::system_error&) {
      client.reset();  // the server's queue is full
    }
  }

  const int port_;
  const Attack attack_;
  std::atomic<size_t> connections_ = 0;
  std::jthread thread_;
};

// OARLOCK_HOSTILE_SECONDS: how long each attack lasts.
inline std::chrono::seconds attack_time() { return std::chrono::seconds(option("OARLOCK_HOSTILE_SECONDS", 2)); }

// What a well-behaved client measures while the process is attacked.
struct AttackResult {
  std::vector<double> health;   // seconds until each response of /healthz
  std::vector<double> scrapes;  // the same of /metrics
  size_t failures = 0;          // responses other than 200
  double grown = 0;             // MiB, of the peak of the resident set over its size before

  double health_percentile(double share) const { return percentile(health, share); }
  double slowest_scrape() const { return percentile(scrapes, 1); }

 private:
  static double percentile(std::vector<double> values, double share) {
    if (values.empty()) return 0;
    std::ranges::sort(values);
    return values[std::min(values.size() - 1, static_cast<size_t>(share * static_cast<double>(values.size())))];
  }
};

// A GET by a well-behaved client: the response with its head.
using Get = std::function<std::string(const std::string& target)>;

// Polls /healthz every 50 ms and /metrics every 500 ms while the attack lasts, and prints the result as a line.
inline AttackResult measure_attack(pid_t pid, int port, const Attack& attack, const Get& get) {
  AttackResult result;
  const auto timed = [&](const std::string& target, std::vector<double>& times) {
    const auto began = std::chrono::steady_clock::now();
    const bool is_ok = get(target).starts_with("HTTP/1.1 200");
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (!is_ok) ++result.failures;
  };
  for (int i = 0; i < 3; ++i) get("/metrics");
  std::ofstream("/proc/" + std::to_string(pid) + "/clear_refs") << "5";  // VmHWM starts again at VmRSS
  const double before = memory_of(pid, "VmRSS");
  size_t connections = 0;
  {
    const HostileClients clients(port, attack);
    const auto end = std::chrono::steady_clock::now() + attack_time();
    for (int i = 0; std::chrono::steady_clock::now() < end; ++i) {
      timed("/healthz", result.health);
      if (i % 10 == 0) timed("/metrics", result.scrapes);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    connections = clients.connections();
  }
  result.grown = memory_of(pid, "VmHWM") - before;
  std::printf(
      "%s: %zu connections; memory %.1f MiB + %.2f MiB; /healthz: %zu times, 50 %% %.1f ms, 99 %% %.1f ms, slowest "
      "%.1f ms; /metrics: %zu times, slowest %.1f ms; failures: %zu\n",
      attack.name.c_str(), connections, before, result.grown, result.health.size(), 1e3 * result.health_percentile(0.5),
      1e3 * result.health_percentile(0.99), 1e3 * result.health_percentile(1), result.scrapes.size(),
      1e3 * result.slowest_scrape(), result.failures);
  return result;
}

// Bounds in seconds for any machine: of 90 % of the responses of /healthz, and of the slowest one of /metrics. On an
// idle machine, /healthz takes less than 100 ms.
inline void expect_unharmed(const AttackResult& result, double health_limit = 1, double scrape_limit = 10) {
  EXPECT_EQ(result.failures, 0u);
  expect_memory_within(result.grown, 8);
  if (kSanitized) return;
  EXPECT_LT(result.health_percentile(0.9), health_limit);
  EXPECT_LT(result.slowest_scrape(), scrape_limit);
}

}  // namespace oarlock::test
