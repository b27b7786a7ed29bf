#include "common/http/connection_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oarlock {
namespace {

using Id = ConnectionTable::Id;

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

TEST(ConnectionTable, PeerAtItsLimitReplacesOwnConnection) {
  ConnectionTable table = table_of({.connections = 10, .connections_per_peer = 2});
  admit(table, "a");
  const Id first = admit(table, "b");
  admit(table, "b");
  EXPECT_EQ(replaced_by(table, "b"), first);
  EXPECT_EQ(replaced_by(table, "a"), std::nullopt);
}

TEST(ConnectionTable, CompleteRequestsAreReplacedLast) {
  ConnectionTable table = table_of({.connections = 4, .connections_per_peer = 4});
  const Id reviewing = admit(table, "a");
  const Id waiting = admit(table, "a");
  const Id responding = admit(table, "a");
  const Id receiving = admit(table, "a");
  ASSERT_TRUE(table.begin_review(reviewing));
  table.begin_wait(waiting);
  table.begin_response(responding);
  for (const Id expected : {receiving, responding, waiting}) {
    const auto next = table.admit("b");
    ASSERT_TRUE(next);
    EXPECT_EQ(next->replaced, expected);
    ASSERT_TRUE(table.begin_review(next->id));
  }
  EXPECT_FALSE(table.admit("c")) << "all of them are being authorized";
  table.remove(reviewing);
  EXPECT_TRUE(table.admit("c"));
}

TEST(ConnectionTable, ReplacesClosingConnectionsLikeIncompleteOnes) {
  ConnectionTable table = table_of({.connections = 2});
  const Id closing = admit(table, "a");
  admit(table, "b");
  table.begin_response(closing);
  table.end_response(closing);
  EXPECT_EQ(replaced_by(table, "c"), closing);
}

TEST(ConnectionTable, LimitsReviewsPerPeerAndInTotal) {
  ConnectionTable table = table_of({.reviews = 3, .reviews_per_peer = 2});
  const Id first = admit(table, "a");
  EXPECT_TRUE(table.begin_review(first));
  EXPECT_TRUE(table.begin_review(admit(table, "a")));
  EXPECT_FALSE(table.begin_review(admit(table, "a")));
  EXPECT_TRUE(table.begin_review(admit(table, "b")));
  EXPECT_FALSE(table.begin_review(admit(table, "c")));
  table.begin_wait(first);
  EXPECT_TRUE(table.begin_review(admit(table, "c")));
}

TEST(ConnectionTable, IgnoresReplacedAndRemovedConnections) {
  ConnectionTable table = table_of({.connections = 1});
  const Id gone = admit(table, "a");
  EXPECT_EQ(replaced_by(table, "b"), gone);
  EXPECT_FALSE(table.begin_review(gone));
  table.begin_wait(gone);
  table.begin_response(gone);
  table.end_response(gone);
  table.remove(gone);
  EXPECT_EQ(table.size(), 1u);
}

}  // namespace
}  // namespace oarlock
