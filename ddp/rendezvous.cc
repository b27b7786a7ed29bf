#include "ddp/rendezvous.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>
#include <vector>

#include "common/host_name.h"
#include "common/json_access.h"
#include "common/status_macros.h"
#include "common/stop_flag.h"
#include "common/text.h"
#include "ddp/agreement_json.h"
#include "ddp/socket.h"

namespace oarlock {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;
using StorePtr = c10::intrusive_ptr<c10d::TCPStore>;

constexpr milliseconds kMinBackoff{20};
constexpr milliseconds kMaxBackoff{1000};
constexpr milliseconds kConnectTimeout{3000};
constexpr milliseconds kPortTimeout{60'000};  // for a port in use: longer than the grace period of an earlier pod
constexpr milliseconds kPortRetryInterval{200};
constexpr milliseconds kStopCheckInterval{1000};  // during a wait on the store
constexpr milliseconds kReportInterval{5000};     // between progress log lines
constexpr milliseconds kStoreTimeout{30'000};     // of one store operation
// Of one attempt to connect to the store, doubled for each one. The store of rank 0 that is being replaced by that of
// the next group may accept a connection and not respond.
constexpr milliseconds kMinStoreConnectTimeout{2000};
constexpr milliseconds kMaxStoreConnectTimeout{10'000};
constexpr milliseconds kLinger{1000};     // how long rank 0 keeps the store for the others to read a failure
constexpr milliseconds kStopGrace{1500};  // until a blocking call is abandoned; above kStopCheckInterval

constexpr char kMaster[] = "oarlock/master";
constexpr char kArrived[] = "oarlock/arrived";
constexpr char kFull[] = "oarlock/full";
constexpr char kGo[] = "oarlock/go";
constexpr char kOutcomesRead[] = "oarlock/verdicts-read";
std::string claim_key(int rank) { return fmt::format("oarlock/claim/{}", rank); }
std::string arrival_key(int rank) { return fmt::format("oarlock/arrival/{}", rank); }

std::vector<uint8_t> to_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string to_text(const std::vector<uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// `state` is what is known about the ranks that were waited for.
tl::unexpected<Error> interrupted(const RendezvousOptions& options, const StopFlag& stop, const std::string& state) {
  return fail(ExitCode::kTempFail,
              fmt::format("rendezvous: interrupted by signal {} while rank {} waited for {} at {}: {}",
                          stop.signal_number(), options.rank, options.rank == 0 ? "the other ranks" : "rank 0",
                          endpoint(options.master_addr, options.master_port), state));
}

Json failure_outcome(ExitCode code, const std::string& message) {
  return {{"code", to_int(code)}, {"message", message}};
}

class Rendezvous {
 public:
  Rendezvous(const RendezvousOptions& options, const StopFlag& stop, const Clock& clock, const ConnectReport& report)
      : options_(options),
        stop_(stop),
        clock_(clock),
        report_(report),
        deadline_(clock.steady() + options.timeout),
        reported_(clock.steady()) {}

  Result<RendezvousResult> run() {
    RETURN_IF_ERROR(options_.rank == 0 ? serve() : join());
    try {
      return check_in();
    } catch (const c10::DistError&) {
      return fail(ExitCode::kPeerLost,
                  fmt::format("rendezvous: rank 0 at {} was lost before all ranks had arrived; its own last message "
                              "names the cause",
                              master_endpoint()));
    }
  }

 private:
  std::string master_endpoint() const { return endpoint(options_.master_addr, options_.master_port); }

  milliseconds remaining() const {
    return std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(deadline_ - clock_.steady()));
  }

  bool report_is_due() {
    if (!report_ || clock_.steady() - reported_ < kReportInterval) return false;
    reported_ = clock_.steady();
    return true;
  }

  tl::unexpected<Error> stopped(const std::string& state) const { return interrupted(options_, stop_, state); }

  // ---- rank 0 ----
  Result<void> serve() {
    ASSIGN_OR_RETURN(const Listener listener, wait_for_port());
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(listener.port);
    store.isServer = true;
    store.waitWorkers = false;
    store.timeout = kStoreTimeout;
    store.masterListenFd = listener.descriptor;  // the store takes ownership
    // A kernel without IPv4 does not have it on loopback either.
    const char* own_host = probe_endpoint("127.0.0.1", listener.port, kConnectTimeout) ? "127.0.0.1" : "::1";
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>(own_host, store);
    } catch (const std::exception& error) {
      return fail(ExitCode::kUnavailable, fmt::format("rendezvous: the store on port {} did not start: {}",
                                                      options_.master_port, error.what()));
    }
    store_->set(kMaster, to_bytes(dump_json(Json{{"world_size", options_.world_size},
                                                 {"uid", options_.uid},
                                                 {"attempt", options_.attempt},
                                                 {"device", options_.device},
                                                 {"has_lost_gpu", options_.has_lost_gpu},
                                                 {"settings", to_json_object(options_.settings)}})));
    return {};
  }

  Result<Listener> wait_for_port() {
    const SteadyTime until = std::min(deadline_, clock_.steady() + kPortTimeout);
    for (;;) {
      Result<Listener> listener = listen_on(options_.master_port);
      const bool in_use = !listener && listener.error().code == ExitCode::kTempFail;
      if (in_use && stop_.is_raised()) return stopped(listener.error().message);
      if (!in_use || clock_.steady() >= until) return listener;
      if (report_is_due()) report_("rendezvous: still waiting for the port", {{"reason", listener.error().message}});
      std::this_thread::sleep_for(kPortRetryInterval);
    }
  }

  // ---- the other ranks ----
  Result<void> join() {
    std::string reason = "not tried yet";
    for (milliseconds pause = kMinBackoff;; pause = std::min(pause * 3 / 2, kMaxBackoff)) {
      const Result<ConnectionAddresses> reached = probe_master();
      if (reached) {
        own_ = {reached->local, reached->peer};
        ASSIGN_OR_RETURN(const bool accepted, connect_store());
        if (accepted) return {};
        reason = rejection_;
      } else {
        reason = reached.error().message;
      }
      if (stop_.is_raised()) return stopped(reason);
      if (remaining() <= pause) {
        return fail(
            ExitCode::kTempFail,
            fmt::format(
                "rendezvous: rank 0 at {} could not be reached within {:.4g} s: {}; check that rank 0 runs, and "
                "MASTER_ADDR and MASTER_PORT",
                master_endpoint(), std::chrono::duration<double>(options_.timeout).count(), reason));
      }
      if (report_is_due()) {
        report_("rendezvous: still trying to reach rank 0",
                {{"address", master_endpoint()}, {"reason", reason}, {"seconds_left", remaining().count() / 1000}});
      }
      std::this_thread::sleep_for(pause);
    }
  }

  Result<ConnectionAddresses> probe_master() const {
    const auto try_host = [&](const std::string& host) {
      return probe_endpoint(host, options_.master_port, std::clamp(remaining(), milliseconds(1), kConnectTimeout));
    };
    Result<ConnectionAddresses> reached = try_host(options_.master_addr);
    const bool unresolved = !reached && reached.error().code == ExitCode::kNoHost;
    return unresolved && !options_.master_fallback.empty() ? try_host(options_.master_fallback) : reached;
  }

  // Returns false if the store rejects this rank for now (rejection_ is the reason), and an error if it always will.
  Result<bool> connect_store() {
    c10d::TCPStoreOptions store;
    store.port = static_cast<uint16_t>(options_.master_port);
    store.waitWorkers = false;
    store.timeout = std::clamp(remaining(), milliseconds(1000), store_connect_timeout_);
    store_connect_timeout_ = std::min(2 * store_connect_timeout_, kMaxStoreConnectTimeout);
    Json master;
    try {
      store_ = c10::make_intrusive<c10d::TCPStore>(own_.master_address, store);
      master = Json::parse(to_text(store_->get(kMaster)), nullptr, false);
      store_->setTimeout(kStoreTimeout);
    } catch (const std::exception&) {
      rejection_ = "the program that listens there does not respond as a TCPStore";
      return false;
    }
    return accept(master);
  }

  Result<bool> accept(const Json& master) {
    if (!master.is_object()) {
      rejection_ = "the store there does not belong to ranks of Oarlock";
      return false;
    }
    const std::string uid = text_at(master, "uid");
    const int attempt = integer_at(master, "attempt", 0);
    const int world_size = integer_at(master, "world_size", 0);
    if (uid != options_.uid) {  // rank 0 of this job may still be waiting for the port
      rejection_ = fmt::format(
          "the rank 0 there belongs to another job (OARLOCK_UID '{}' there, '{}' here): give each job its own "
          "MASTER_ADDR and MASTER_PORT",
          uid, options_.uid);
      return false;
    }
    if (attempt > options_.attempt) {
      return fail(
          ExitCode::kConfig,
          fmt::format("rendezvous: rank 0 at {} is of attempt {}, this is rank {} of attempt {}, which has been "
                      "replaced; stop this process",
                      master_endpoint(), attempt, options_.rank, options_.attempt));
    }
    if (attempt < options_.attempt) {  // it is being replaced
      rejection_ = fmt::format("attempt {} is still running, this is attempt {}", attempt, options_.attempt);
      return false;
    }
    if (world_size != options_.world_size) {
      const std::string message =
          fmt::format("rendezvous: WORLD_SIZE={} on rank 0 but WORLD_SIZE={} on rank {}; set the same on all ranks",
                      world_size, options_.world_size, options_.rank);
      publish(failure_outcome(ExitCode::kConfig, message));
      return fail(ExitCode::kConfig, message);
    }
    if (const std::string device = text_at(master, "device"); device != options_.device) {
      const bool has_lost_gpu = options_.has_lost_gpu || true_at(master, "has_lost_gpu");
      const ExitCode code = has_lost_gpu ? ExitCode::kDeviceFailed : ExitCode::kConfig;
      const std::string message = fmt::format(
          "rendezvous: rank {} trains on '{}', but rank 0 on '{}'; {}", options_.rank, options_.device, device,
          has_lost_gpu ? "the GPU of the rank on the CPU, or its driver, failed"
                       : "give all ranks the same devices, or use the CPU on all of them");
      publish(failure_outcome(code, message));
      return fail(own_code(code), message);
    }
    const AgreedValues settings = agreed_values_from_json(master.value("settings", Json()));
    if (const Result<void> same = check_agreement(AgreedKind::kSettings, options_.rank, options_.settings, settings);
        !same) {
      publish(failure_outcome(same.error().code, same.error().message));
      return tl::make_unexpected(same.error());
    }
    return true;
  }

  // The failure of a GPU is the cause on its own rank only.
  ExitCode own_code(ExitCode code) const {
    return code == ExitCode::kDeviceFailed && !options_.has_lost_gpu ? ExitCode::kPeerLost : code;
  }

  // ---- all ranks ----

  // The value of a key that exists. Anything that can connect to the port can write it: a discarded value if it is not
  // JSON.
  Json read(const std::string& key) {
    return Json::parse(to_text(store_->get(key)), nullptr, /*allow_exceptions=*/false);
  }

  // Only the first outcome counts.
  void publish(const Json& value) {
    store_->compareSet(kGo, {}, to_bytes(value.dump()));
    store_->set(kFull, to_bytes("failed"));
  }

  Result<RendezvousResult> check_in() {
    const Json arrival = {
        {"local", own_.local_address}, {"master", own_.master_address}, {"host", host_name()}, {"pid", ::getpid()}};
    if (store_->add(claim_key(options_.rank), 1) > 1) return claimed_twice();
    store_->set(arrival_key(options_.rank), to_bytes(arrival.dump()));
    if (store_->add(kArrived, 1) == options_.world_size) store_->set(kFull, to_bytes("full"));
    if (options_.rank == 0) {
      if (const Result<void> full = wait_for(kFull); !full) return abandon(full.error());
      if (to_text(store_->get(kFull)) == "full") publish_go();
    }
    if (const Result<void> go = wait_for(kGo); !go) return abandon(go.error());
    return finish(read(kGo));
  }

  Result<RendezvousResult> claimed_twice() {
    std::string other = "another process";
    if (store_->check({arrival_key(options_.rank)})) {
      const Json first = read(arrival_key(options_.rank));
      other = fmt::format("pid {} on {}", integer_at(first, "pid", 0), text_at(first, "host"));
    }
    const std::string message =
        fmt::format("rendezvous: RANK={} is claimed twice: by {} and by pid {} on {}; give each process its own RANK",
                    options_.rank, other, ::getpid(), host_name());
    publish(failure_outcome(ExitCode::kConfig, message));
    return fail(ExitCode::kConfig, message);
  }

  void publish_go() {
    std::vector<Arrival> arrivals;
    for (int rank = 1; rank < options_.world_size; ++rank) {
      const Json arrival = read(arrival_key(rank));
      arrivals.push_back({text_at(arrival, "local"), text_at(arrival, "master")});
    }
    store_->compareSet(kGo, {}, to_bytes(Json{{"code", 0}, {"master", master_address_from(arrivals)}}.dump()));
  }

  Result<RendezvousResult> finish(const Json& go) {
    const int code = integer_at(go, "code", to_int(ExitCode::kPeerLost));
    if (code == 0) {
      const std::string master = text_at(go, "master");
      return RendezvousResult{store_, options_.rank == 0 ? master : own_address_from(own_, master)};
    }
    store_->add(kOutcomesRead, 1);
    linger();
    for (const ExitCode known : {ExitCode::kConfig, ExitCode::kTempFail, ExitCode::kDeviceFailed}) {
      if (code == to_int(known)) return fail(own_code(known), text_at(go, "message"));
    }
    return fail(ExitCode::kPeerLost, text_at(go, "message"));
  }

  // The store ends with rank 0, so the other ranks, including those that have yet to arrive, must read the outcome
  // first.
  void linger() {
    if (options_.rank != 0 || (options_.is_repeatable && stop_.is_raised())) return;
    const SteadyTime until = clock_.steady() + kLinger;
    while (clock_.steady() < until && store_->add(kOutcomesRead, 0) < options_.world_size) {
      std::this_thread::sleep_for(milliseconds(10));
    }
  }

  Result<void> wait_for(const char* key) {
    for (;;) {
      try {
        const milliseconds interval = options_.is_repeatable ? kRegroupStopGrace / 2 : kStopCheckInterval;
        store_->wait({key}, std::clamp(remaining(), milliseconds(1), interval));
        return {};
      } catch (const c10::DistStoreError&) {  // the interval has passed
      }
      if (stop_.is_raised())
        return stopped(fmt::format("{} of {} ranks had arrived", store_->add(kArrived, 0), options_.world_size));
      if (remaining() == milliseconds(0)) {
        return fail(
            ExitCode::kTempFail,
            fmt::format(
                "rendezvous: {} of {} ranks arrived within {:.4g} s; missing: rank {}; check why they did not start",
                store_->add(kArrived, 0), options_.world_size, std::chrono::duration<double>(options_.timeout).count(),
                missing()));
      }
      if (report_is_due()) {
        report_("rendezvous: waiting for ranks",
                {{"missing", missing()}, {"seconds_left", remaining().count() / 1000}});
      }
    }
  }

  // Returns the first ranks that have not arrived, such as "1, 5, 7 and others".
  std::string missing() {
    constexpr size_t kMaxShown = 16;
    std::vector<int> ranks;
    for (int rank = 0; rank < options_.world_size && ranks.size() <= kMaxShown; ++rank) {
      if (!store_->check({arrival_key(rank)})) ranks.push_back(rank);
    }
    const bool has_more = ranks.size() > kMaxShown;
    if (has_more) ranks.resize(kMaxShown);
    return fmt::format("{}{}", fmt::join(ranks, ", "), has_more ? " and others" : "");
  }

  // Fails, and makes the other ranks fail with the same error.
  Result<RendezvousResult> abandon(const Error& error) {
    publish(failure_outcome(error.code, error.message));
    store_->add(kOutcomesRead, 1);
    linger();
    return tl::make_unexpected(error);
  }

  const RendezvousOptions& options_;
  const StopFlag& stop_;
  const Clock& clock_;
  const ConnectReport& report_;
  milliseconds store_connect_timeout_ = kMinStoreConnectTimeout;
  const SteadyTime deadline_;
  SteadyTime reported_;
  StorePtr store_;
  Arrival own_;            // on ranks 1 and up
  std::string rejection_;  // why the master does not accept this rank yet
};

}  // namespace

std::string master_address_from(std::span<const Arrival> arrivals) {
  for (const Arrival& arrival : arrivals) {
    if (!is_loopback(arrival.master_address)) return arrival.master_address;
  }
  return arrivals.empty() ? "127.0.0.1" : arrivals.front().master_address;
}

std::string own_address_from(const Arrival& own, const std::string& master_address) {
  return is_loopback(own.local_address) ? master_address : own.local_address;
}

Result<RendezvousResult> rendezvous(const RendezvousOptions& options, const std::shared_ptr<const StopFlag>& stop,
                                    const Clock& clock, const ConnectReport& report) {
  const auto body = [options, stop, &clock, report] { return Rendezvous(options, *stop, clock, report).run(); };
  // Name resolution, and requests to a store whose process is stopped, block for longer than a pod's grace period.
  const milliseconds grace = options.rank == 0 ? kStopGrace + kLinger : kStopGrace;
  const std::optional<Result<RendezvousResult>> met = run_interruptibly<Result<RendezvousResult>>(
      body, *stop, options.is_repeatable ? kRegroupStopGrace : grace, options.timeout + 2 * (kStopGrace + kLinger));
  if (met) return *met;
  if (stop->is_raised()) return interrupted(options, *stop, "no response");
  return fail(
      ExitCode::kTempFail,
      fmt::format("rendezvous: rank 0 at {} could not be reached within {:.4g} s: the program that listens "
                  "there does not respond as a TCPStore; check that rank 0 runs, and MASTER_ADDR and MASTER_PORT",
                  endpoint(options.master_addr, options.master_port),
                  std::chrono::duration<double>(options.timeout).count()));
}

}  // namespace oarlock
