// Blocked lookups are shared, and delay neither a call beyond its limits nor the exit of the program.
#include "http/client/channel.h"

#include <gmock/gmock.h>

#include <atomic>
#include <boost/asio/ip/address.hpp>
#include <future>
#include <thread>

namespace oarlock::http {
namespace {

using namespace std::chrono_literals;
using SteadyClock = std::chrono::steady_clock;

// Not a constant, which an abandoned lookup could read while the process destroys it.
Resolver::Endpoints found() { return {{boost::asio::ip::make_address("10.0.0.1"), 443}}; }

CallLimits limits_of(Milliseconds limit, std::stop_token stop = {}) { return {{.idle = limit, .total = limit}, stop}; }

// A lookup that blocks until the end of the test.
class BlockedLookup {
 public:
  ~BlockedLookup() { state_->release.set_value(); }
  Resolver::Lookup function() const {
    return [state = state_](const std::string&, const std::string&) {
      ++state->calls;
      state->released.wait();
      return found();
    };
  }
  int calls() const { return state_->calls; }

 private:
  struct State {  // shared with the abandoned threads
    std::promise<void> release;
    std::shared_future<void> released = release.get_future().share();
    std::atomic<int> calls = 0;
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
};

TEST(Resolver, ReturnsAnAddressWithoutALookup) {
  const auto never = [](const std::string&, const std::string&) -> Resolver::Endpoints {
    ADD_FAILURE();
    return {};
  };
  EXPECT_EQ(Resolver("127.0.0.1", "6443", never).resolve(limits_of(1s)).value().at(0).port(), 6443);
  EXPECT_TRUE(Resolver("fd00::1", "6443", never).resolve(limits_of(1s)).value().at(0).address().is_v6());
}

TEST(Resolver, ReturnsResolvedAddresses) {
  int calls = 0;
  Resolver resolver("name", "443", [&](const std::string& host, const std::string& port) {
    ++calls;
    return host == "name" && port == "443" ? found() : Resolver::Endpoints();
  });
  EXPECT_EQ(resolver.resolve(limits_of(20s)).value(), found());
  EXPECT_EQ(resolver.resolve(limits_of(20s)).value(), found());
  EXPECT_EQ(calls, 2) << "results are not cached";
}

TEST(Resolver, FailsForUnknownHost) {
  Resolver resolver("name", "443", [](const std::string&, const std::string&) { return Resolver::Endpoints(); });
  const auto result = resolver.resolve(limits_of(20s));
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().kind, TransportErrorKind::kConnect);
}

TEST(Resolver, BlockedLookupEndsAtTheDeadlineAndIsShared) {
  const BlockedLookup lookup;
  const auto started = SteadyClock::now();
  {
    Resolver resolver("name", "443", lookup.function());
    for (int i = 0; i < 3; ++i) {
      const auto result = resolver.resolve(limits_of(100ms));
      ASSERT_FALSE(result);
      EXPECT_EQ(result.error().kind, TransportErrorKind::kDeadline);
    }
  }
  EXPECT_LT(SteadyClock::now() - started, 60s) << "not even the destructor waits";
  EXPECT_EQ(lookup.calls(), 1);
}

TEST(Resolver, BlockedLookupIsCancelled) {
  const BlockedLookup lookup;
  Resolver resolver("name", "443", lookup.function());
  std::stop_source stop;
  auto result = std::async(std::launch::async, [&] { return resolver.resolve(limits_of(60s, stop.get_token())); });
  while (lookup.calls() == 0) std::this_thread::yield();
  stop.request_stop();
  ASSERT_EQ(result.wait_for(20s), std::future_status::ready);
  EXPECT_EQ(result.get().error().kind, TransportErrorKind::kCancelled);
}

TEST(Resolver, BlockedLookupDoesNotDelayTheExit) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        static const BlockedLookup* lookup = new BlockedLookup;  // never released
        Resolver resolver("name", "443", lookup->function());
        std::exit(resolver.resolve(limits_of(50ms)) ? 1 : 7);
      },
      ::testing::ExitedWithCode(7), "");
}

}  // namespace
}  // namespace oarlock::http
