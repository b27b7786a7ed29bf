#include "http/connection_table.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

namespace oarlock {
namespace {

using namespace std::chrono_literals;
using Id = ConnectionTable::Id;

constexpr SteadyTime kNow{};

ConnectionTable table_of(const HttpLimits& limits) { return ConnectionTable(limits); }

Id admit(ConnectionTable& table, const std::string& peer) {
  const auto admission = table.admit(peer, kNow);
  EXPECT_TRUE(admission);
  return admission ? admission->id : 0;
}

std::optional<Id> replaced_by(ConnectionTable& table, const std::string& peer) {
  const auto admission = table.admit(peer, kNow);
  EXPECT_TRUE(admission);
  return admission ? admission->replaced : std::nullopt;
}

TEST(ConnectionTable, ReplacesOldestOfHeaviestPeer) {
  ConnectionTable table = table_of({.connections = 4, .connections_per_peer = 4});
  admit(table, "kubelet");
  const Id first = admit(table, "attacker");
  const Id second = admit(table, "attacker");
  EXPECT_EQ(replaced_by(table, "scraper"), std::nullopt);
  EXPECT_EQ(replaced_by(table, "other"), first);
  EXPECT_NE(replaced_by(table, "another"), second) << "each peer has one now, and the kubelet's is the oldest";
  EXPECT_EQ(table.size(), 4u);
}

// A host may use any number of IPv6 addresses of its network.
TEST(ConnectionTable, AddressesOfOneNetworkCountTogether) {
  ConnectionTable table = table_of({.connections = 4, .connections_per_peer = 4});
  admit(table, "192.0.2.1");
  const Id first = admit(table, "2001:db8::1");
  admit(table, "2001:db8::2");
  admit(table, "2001:db8::3");
  EXPECT_EQ(replaced_by(table, "192.0.2.2"), first);
}

TEST(ConnectionTable, PeerAtItsLimitReplacesOwnConnection) {
  ConnectionTable table = table_of({.connections = 10, .connections_per_peer = 2});
  admit(table, "a");
  const Id first = admit(table, "b");
  admit(table, "b");
  EXPECT_EQ(replaced_by(table, "b"), first);
  EXPECT_EQ(replaced_by(table, "a"), std::nullopt);
}

TEST(ConnectionTable, ReviewedConnectionsAreNotReplaced) {
  ConnectionTable table = table_of({.connections = 2, .connections_per_peer = 2});
  const Id reviewed = admit(table, "a");
  ASSERT_TRUE(table.begin_review(reviewed, kNow));
  const Id other = admit(table, "a");
  EXPECT_EQ(replaced_by(table, "b"), other);
  ASSERT_TRUE(table.begin_review(other + 1, kNow));
  EXPECT_FALSE(table.admit("c", kNow)) << "all of them are being authorized";
  table.remove(reviewed);
  EXPECT_TRUE(table.admit("c", kNow));
}

// Clients with an address each hold most connections in one state; a client in another state keeps its connection.
TEST(ConnectionTable, ReplacesInTheMostCommonState) {
  struct Row {
    const char* name;
    void (*enter)(ConnectionTable&, Id);
  };
  const std::vector<Row> states = {
      {"receiving", [](ConnectionTable&, Id) {}},
      {"waiting", [](ConnectionTable& table, Id id) { table.begin_wait(id, kNow); }},
      {"responding", [](ConnectionTable& table, Id id) { table.begin_response(id, kNow); }},
      {"closing",
       [](ConnectionTable& table, Id id) {
         table.begin_response(id, kNow);
         table.end_response(id, kNow);
       }},
  };
  for (const Row& of_attackers : states) {
    for (const Row& of_client : states) {
      if (&of_attackers == &of_client) continue;
      SCOPED_TRACE(fmt::format("{} among {}", of_client.name, of_attackers.name));
      ConnectionTable table = table_of({.connections = 8});
      const Id client = admit(table, "client");
      of_client.enter(table, client);
      std::vector<Id> attackers;
      for (int i = 0; i < 100; ++i) {
        const auto admission = table.admit(fmt::format("attacker {}", i), kNow);
        ASSERT_TRUE(admission);
        ASSERT_NE(admission->replaced, client);
        of_attackers.enter(table, admission->id);
      }
    }
  }
}

TEST(ConnectionTable, ReplacesLongestInItsState) {
  ConnectionTable table = table_of({.connections = 2});
  const Id older = admit(table, "a");
  const Id newer = admit(table, "b");
  table.begin_wait(newer, kNow + 1ms);
  table.begin_wait(older, kNow + 2ms);
  EXPECT_EQ(replaced_by(table, "c"), newer);
}

TEST(ConnectionTable, ReplacesReaderWithoutProgress) {
  ConnectionTable table = table_of({.connections = 3});
  const Id reader = admit(table, "a");
  const Id stalled = admit(table, "b");
  const Id waiting = admit(table, "c");
  table.begin_wait(waiting, kNow);
  table.begin_response(reader, kNow + 1ms);
  table.begin_response(stalled, kNow + 2ms);
  table.record_progress(reader, kNow + 3ms);
  table.record_progress(waiting, kNow + 4ms);
  EXPECT_EQ(table.last_progress(reader), kNow + 3ms);
  EXPECT_EQ(table.last_progress(waiting), kNow) << "it does not respond";
  EXPECT_EQ(replaced_by(table, "d"), stalled);
  EXPECT_EQ(table.last_progress(stalled), std::nullopt);
}

// Readers that do not read, from few addresses, against a client that opens one connection.
void expect_client_is_kept(bool is_tls, int addresses, int readers) {
  ConnectionTable table({});
  SteadyTime now = kNow;
  int next = 0;
  std::set<Id> replaced;
  const auto note = [&](const std::optional<ConnectionTable::Admission>& admission) {
    if (admission && admission->replaced) replaced.insert(*admission->replaced);
  };
  const auto attack = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const auto admission = table.admit(fmt::format("192.0.2.{}", next++ % addresses), now += 1us);
      ASSERT_TRUE(admission);
      note(admission);
      if (is_tls) note(table.begin_session(admission->id, now));
      table.begin_response(admission->id, now);
    }
  };
  attack(readers);
  const Id client = table.admit("198.51.100.1", now)->id;
  attack(readers);
  if (is_tls) note(table.begin_session(client, now));
  attack(readers);
  table.begin_wait(client, now);
  attack(readers);
  table.begin_response(client, now);
  attack(readers);
  table.end_response(client, now);
  attack(readers);
  EXPECT_FALSE(replaced.contains(client)) << addresses << " addresses, " << readers << " readers";
  EXPECT_FALSE(replaced.empty());
}

TEST(ConnectionTable, SlowReadersDoNotDisplaceAClient) {
  expect_client_is_kept(false, 5, 320);
  expect_client_is_kept(false, 20, 1000);
  expect_client_is_kept(true, 2, 33);
  expect_client_is_kept(true, 4, 64);
}

TEST(ConnectionTable, NewSessionReplacesSessionOfHeaviestPeer) {
  ConnectionTable table = table_of({.tls_sessions = 2, .tls_sessions_per_peer = 2});
  const Id silent = admit(table, "a");
  const Id first = admit(table, "a");
  const Id second = admit(table, "b");
  EXPECT_EQ(table.begin_session(first, kNow)->replaced, std::nullopt);
  EXPECT_EQ(table.begin_session(second, kNow)->replaced, std::nullopt);
  const Id third = admit(table, "c");
  EXPECT_EQ(table.begin_session(third, kNow)->replaced, first) << "the silent connection needs no session";
  table.remove(second);
  EXPECT_EQ(table.begin_session(silent, kNow)->replaced, std::nullopt);
  EXPECT_FALSE(table.begin_session(first, kNow)) << "it has been replaced";
}

TEST(ConnectionTable, PeerAtItsLimitReplacesOwnSession) {
  ConnectionTable table = table_of({.tls_sessions = 10, .tls_sessions_per_peer = 1});
  const Id other = admit(table, "a");
  const Id first = admit(table, "b");
  const Id second = admit(table, "b");
  for (const Id id : {other, first}) EXPECT_EQ(table.begin_session(id, kNow)->replaced, std::nullopt);
  ASSERT_TRUE(table.begin_review(first, kNow));
  EXPECT_FALSE(table.begin_session(second, kNow)) << "its only session is being authorized";
  table.begin_wait(first, kNow);
  EXPECT_EQ(table.begin_session(second, kNow)->replaced, first);
}

// Each address holds one session at a time, and more of them want one than there are.
TEST(ConnectionTable, RareSessionIsKeptAmongFrequentOnes) {
  constexpr size_t kSessions = 4;
  constexpr int kAddresses = 6;
  ConnectionTable table = table_of({.tls_sessions = kSessions});
  SteadyTime now = kNow;
  std::vector<Id> open(kAddresses);
  const auto flood = [&](const Id spared) {
    for (int i = 0; i < 10 * kAddresses; ++i) {
      Id& id = open[static_cast<size_t>(i) % kAddresses];
      table.remove(id);
      id = admit(table, fmt::format("attacker {}", i % kAddresses));
      const auto admission = table.begin_session(id, now += 1ms);
      ASSERT_TRUE(admission);
      ASSERT_NE(admission->replaced, spared);
      table.begin_wait(id, now);
    }
  };
  open.assign(kAddresses, Id{1} << 60);
  flood(Id{1} << 61);
  const Id client = admit(table, "client");
  ASSERT_TRUE(table.begin_session(client, now));
  flood(client);
  table.begin_wait(client, now);
  flood(client);
  table.begin_response(client, now);
  flood(client);
}

TEST(ConnectionTable, SparesHandshakesAmongStalledReaders) {
  constexpr auto kStall = ConnectionTable::kStallTime;
  for (const int readers : {1, 2}) {
    for (const auto age : {kStall, kStall - 1ms}) {  // of the handshakes
      SCOPED_TRACE(fmt::format("{} readers, {} ms", readers, age.count()));
      ConnectionTable table = table_of({.tls_sessions = 5});
      SteadyTime now = kNow;
      std::vector<Id> reading;
      std::vector<Id> in_handshake;
      for (int i = 0; i < readers; ++i) {
        reading.push_back(admit(table, fmt::format("reader {}", i)));
        table.begin_session(reading.back(), now);
        table.begin_response(reading.back(), now += 1ms);
      }
      now += 1s;
      while (in_handshake.size() + reading.size() < 5) {
        in_handshake.push_back(admit(table, fmt::format("other {}", in_handshake.size())));
        table.begin_session(in_handshake.back(), now);
      }
      const auto admission = table.begin_session(admit(table, "new"), now + age);
      ASSERT_TRUE(admission);
      const bool are_spared = readers == 2 && age < kStall;
      EXPECT_EQ(admission->replaced, are_spared ? reading.front() : in_handshake.front());
    }
  }
}

TEST(ConnectionTable, WeightIsTheNumberOfConnections) {
  ConnectionTable table = table_of({});
  const Id id = admit(table, "a");
  admit(table, "a");
  EXPECT_EQ(table.weight(id, kNow), 2u);
  table.prefer(id, kNow);
  EXPECT_EQ(table.weight(id, kNow), 0u);
  table.remove(id);
  EXPECT_EQ(table.weight(id, kNow), std::nullopt);
}

TEST(ConnectionTable, AddressIsAuthorizedForALimitedTime) {
  ConnectionTable table = table_of({});
  const Id id = admit(table, "a");
  const Id same = admit(table, "a");
  const Id other = admit(table, "b");
  EXPECT_FALSE(table.is_authorized(id, kNow));
  table.prefer(id, kNow);
  table.remove(id);
  EXPECT_FALSE(table.is_authorized(id, kNow)) << "unknown";
  EXPECT_TRUE(table.is_authorized(same, kNow));
  EXPECT_FALSE(table.is_authorized(other, kNow));
  EXPECT_FALSE(table.is_authorized(same, kNow + ConnectionTable::kAuthorizedTime));
}

TEST(ConnectionTable, NetworkOfAnAddress) {
  EXPECT_EQ(network_of("192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(network_of("::ffff:192.0.2.1"), "192.0.2.1");
  EXPECT_EQ(network_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(network_of("::1"), "::/64");
  EXPECT_EQ(network_of("fe80::1%eth0"), "fe80::/64");
  EXPECT_EQ(network_of("no address"), "no address");
}

TEST(ConnectionTable, Ipv6NetworkIsOnePeer) {
  ConnectionTable table = table_of({.connections = 10, .connections_per_peer = 2});
  const Id first = admit(table, "2001:db8::1");
  admit(table, "2001:db8::2");
  EXPECT_EQ(replaced_by(table, "2001:db8::3"), first);
  EXPECT_EQ(replaced_by(table, "2001:db8:0:1::3"), std::nullopt);
}

TEST(ConnectionTable, HeaviestAddressOfANetworkIsReplaced) {
  ConnectionTable table = table_of({.connections = 10, .connections_per_peer = 4});
  admit(table, "2001:db8::1");
  const Id first = admit(table, "2001:db8::2");
  admit(table, "2001:db8::2");
  admit(table, "2001:db8::3");
  EXPECT_EQ(replaced_by(table, "2001:db8::3"), first);
}

TEST(ConnectionTable, AuthorizedAddressesAreReplacedLast) {
  ConnectionTable table = table_of({.connections = 8});
  table.prefer(admit(table, "scraper"), kNow);
  for (int i = 0; i < 100; ++i) EXPECT_NE(replaced_by(table, fmt::format("attacker {}", i)), Id{0});
  // After that time it is the oldest of equals.
  const auto late = table.admit("other", kNow + ConnectionTable::kAuthorizedTime);
  ASSERT_TRUE(late);
  EXPECT_EQ(late->replaced, Id{0});
}

TEST(ConnectionTable, PreferenceIsLimited) {
  constexpr size_t kFew = ConnectionTable::kPreferredConnections;
  ConnectionTable table = table_of({.connections = kFew + 2});
  const Id first = admit(table, "scraper");
  table.prefer(first, kNow);
  for (size_t i = 1; i < kFew; ++i) admit(table, "scraper");
  const Id other = admit(table, "a");
  const Id another = admit(table, "b");
  EXPECT_EQ(replaced_by(table, "c"), other) << "the scraper has more connections and is preferred";
  EXPECT_EQ(replaced_by(table, "scraper"), another);
  EXPECT_EQ(replaced_by(table, "d"), first) << "it has more than a few";
}

TEST(ConnectionTable, RemembersTheLastAuthorizedAddresses) {
  constexpr size_t kCount = ConnectionTable::kAuthorizedAddresses;
  ConnectionTable table = table_of({.connections = kCount + 1});
  std::vector<Id> ids;
  for (size_t i = 0; i <= kCount; ++i) {
    ids.push_back(admit(table, fmt::format("scraper {}", i)));
    table.prefer(ids.back(), kNow);
  }
  EXPECT_EQ(replaced_by(table, "a"), ids[0]) << "it has been forgotten";
  EXPECT_EQ(replaced_by(table, "b"), ids.back() + 1) << "the others have not";
}

TEST(ConnectionTable, LimitsReviewsPerPeerAndInTotal) {
  ConnectionTable table = table_of({.reviews = 3, .reviews_per_peer = 2});
  const Id first = admit(table, "a");
  EXPECT_TRUE(table.begin_review(first, kNow));
  EXPECT_TRUE(table.begin_review(admit(table, "a"), kNow));
  EXPECT_FALSE(table.begin_review(admit(table, "a"), kNow));
  EXPECT_TRUE(table.begin_review(admit(table, "b"), kNow));
  EXPECT_FALSE(table.begin_review(admit(table, "c"), kNow));
  table.begin_wait(first, kNow);
  EXPECT_TRUE(table.begin_review(admit(table, "c"), kNow));
}

TEST(ConnectionTable, IgnoresReplacedAndRemovedConnections) {
  ConnectionTable table = table_of({.connections = 1});
  const Id gone = admit(table, "a");
  EXPECT_EQ(replaced_by(table, "b"), gone);
  EXPECT_FALSE(table.begin_review(gone, kNow));
  table.begin_wait(gone, kNow);
  table.begin_response(gone, kNow);
  table.end_response(gone, kNow);
  table.remove(gone);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace oarlock
