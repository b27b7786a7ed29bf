#include "common/http/connection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Id = ConnectionTable::Id;

constexpr SteadyTime kStart{};
constexpr auto kLater = kStart + std::chrono::seconds(5);

ConnectionTable table_of(const HttpLimits& limits) { return ConnectionTable(limits, false); }

Id admit(ConnectionTable& table, const std::string& peer) {
  const auto admission = table.admit(peer);
  EXPECT_TRUE(admission);
  return admission ? admission->id : 0;
}

std::optional<Id> replaced_by(ConnectionTable& table, const std::string& peer) {
  const auto admission = table.admit(peer);
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

TEST(ConnectionTable, PeerAtItsLimitReplacesItsOwn) {
  ConnectionTable table = table_of({.connections = 10, .connections_per_peer = 2});
  admit(table, "a");
  const Id first = admit(table, "b");
  admit(table, "b");
  EXPECT_EQ(replaced_by(table, "b"), first);
  EXPECT_EQ(replaced_by(table, "a"), std::nullopt);
}

TEST(ConnectionTable, CompleteRequestsAreReplacedLast) {
  ConnectionTable table = table_of({.connections = 3, .connections_per_peer = 3});
  const Id handling = admit(table, "a");
  const Id responding = admit(table, "a");
  const Id receiving = admit(table, "a");
  ASSERT_TRUE(table.begin_task(handling));
  ASSERT_TRUE(table.begin_task(responding));
  table.begin_response(responding, 10, kStart);
  const auto next = table.admit("b");
  ASSERT_TRUE(next);
  EXPECT_EQ(next->replaced, receiving);
  ASSERT_TRUE(table.begin_task(next->id));
  const auto after = table.admit("c");
  ASSERT_TRUE(after);
  EXPECT_EQ(after->replaced, responding);
  ASSERT_TRUE(table.begin_task(after->id));
  EXPECT_FALSE(table.admit("d")) << "all of them wait for their handlers";
  table.remove(handling);
  EXPECT_TRUE(table.admit("d"));
}

TEST(ConnectionTable, LimitsTasksPerPeerAndInTotal) {
  ConnectionTable table = table_of({.tasks = 3, .tasks_per_peer = 2});
  const Id first = admit(table, "a");
  EXPECT_TRUE(table.begin_task(first));
  EXPECT_TRUE(table.begin_task(admit(table, "a")));
  EXPECT_FALSE(table.begin_task(admit(table, "a")));
  EXPECT_TRUE(table.begin_task(admit(table, "b")));
  EXPECT_FALSE(table.begin_task(admit(table, "c")));
  EXPECT_TRUE(table.begin_response(first, 1, kStart).is_admitted);
  EXPECT_TRUE(table.begin_task(admit(table, "c")));
}

// A table in which each of these peers has a response of 100 bytes that it began to read at kStart.
struct Responses {
  explicit Responses(const std::vector<std::string>& peers) : table({.response_bytes = 250}, false) {
    for (const std::string& peer : peers) {
      ids.push_back(admit(table, peer));
      EXPECT_TRUE(add(ids.back(), kStart).is_admitted);
    }
  }
  ConnectionTable::ResponseAdmission add(Id id, SteadyTime now, size_t bytes = 100) {
    EXPECT_TRUE(table.begin_task(id));
    return table.begin_response(id, bytes, now);
  }

  ConnectionTable table;
  std::vector<Id> ids;
};

TEST(ConnectionTable, ReplacesSlowReaders) {
  Responses world({"a", "b"});
  const auto third = world.add(admit(world.table, "c"), kLater);
  EXPECT_TRUE(third.is_admitted);
  EXPECT_THAT(third.replaced, ElementsAre(world.ids[0]));
}

TEST(ConnectionTable, FastReadersAreKept) {
  Responses world({"a", "b"});
  const auto third = world.add(admit(world.table, "c"), kStart);
  EXPECT_FALSE(third.is_admitted);
  EXPECT_THAT(third.replaced, IsEmpty());
  world.table.end_response(world.ids[0]);
  EXPECT_TRUE(world.add(admit(world.table, "c"), kStart).is_admitted);
}

TEST(ConnectionTable, PeerWithMoreResponsesYieldsImmediately) {
  Responses world({"attacker", "attacker"});
  const auto third = world.add(admit(world.table, "scraper"), kStart);
  EXPECT_TRUE(third.is_admitted);
  EXPECT_THAT(third.replaced, ElementsAre(world.ids[0]));
}

TEST(ConnectionTable, TwoResponsesAreAdmittedWhateverTheirSize) {
  Responses world({});
  EXPECT_TRUE(world.add(admit(world.table, "a"), kStart, 1000).is_admitted);
  EXPECT_TRUE(world.add(admit(world.table, "b"), kStart, 1000).is_admitted);
  EXPECT_FALSE(world.add(admit(world.table, "c"), kStart, 1000).is_admitted);
}

TEST(ConnectionTable, ReplacedAndRemovedConnectionsAreIgnored) {
  ConnectionTable table = table_of({.connections = 1});
  const Id gone = admit(table, "a");
  EXPECT_EQ(replaced_by(table, "b"), gone);
  EXPECT_FALSE(table.begin_task(gone));
  EXPECT_TRUE(table.begin_response(gone, 1, kStart).is_admitted);
  table.end_response(gone);
  table.remove(gone);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace oarlock
