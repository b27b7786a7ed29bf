// The agent of a launcher in the regroup protocol, event by event.
#include "recovery/node_agent.h"

#include <gmock/gmock.h>

#include "recovery/coordinator.h"

namespace oarlock::recovery {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

NodeAgent agent_of(RestartPolicy policy) {
  NodeAgentOptions options;
  options.node = 1;
  options.first_rank = 2;
  options.ranks = 2;
  options.policy = policy;
  options.launcher = 7;
  options.store_host = "node0";
  options.store_port = 29500;
  return NodeAgent(options);
}

Order form(int64_t generation, uint64_t sequence) {
  Order order;
  order.coordinator = 9;
  order.sequence = sequence;
  order.kind = OrderKind::kForm;
  order.generation = generation;
  return order;
}

Order run(NodeAgent& agent, int64_t generation, uint64_t sequence) {
  Order order = form(generation, sequence);
  order.kind = OrderKind::kRun;
  order.nodes = {0, 1};
  order.members = {1, 2};
  for (const NodeAgent::Slot& slot : agent.state().slots) order.members.push_back(slot.report.process);
  order.donor = generation > 0 ? 0 : -1;
  return order;
}

JoinRequest join(int64_t generation, int64_t step) {
  JoinRequest request;
  request.generation = generation;
  request.step = step;
  return request;
}

// An agent whose ranks have started, in a group that forms.
NodeAgent starting_agent(RestartPolicy policy = RestartPolicy::kRank) {
  NodeAgent agent = agent_of(policy);
  agent.start();
  agent.received(form(0, 1));
  return agent;
}

// An agent whose ranks have joined the group of this generation.
NodeAgent joined_agent(int64_t generation = 0) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  EXPECT_THAT(agent.start().spawn, ElementsAre(0, 1));
  agent.received(form(generation, 1));
  for (const int rank : {0, 1}) agent.joined(rank, join(-1, -1));
  return agent;
}

TEST(NodeAgent, AssignsMembersOnce) {
  NodeAgent agent = joined_agent();
  const Order order = run(agent, 0, 2);
  const NodeAgent::Actions actions = agent.received(order);
  ASSERT_THAT(actions.send, SizeIs(2));
  EXPECT_EQ(actions.send[1].command.kind, RankCommand::Kind::kAssign);
  EXPECT_EQ(actions.send[1].command.rank, 3);
  EXPECT_EQ(actions.send[1].command.world_size, 4);
  EXPECT_EQ(actions.send[1].command.store_prefix, "oarlock/0/9");
  EXPECT_THAT(agent.received(order).send, IsEmpty());
}

// Node ranks 0, 1 and 3 of four: the ranks of this node follow those of node rank 0.
TEST(NodeAgent, AssignsPositionAmongTheNodesOfTheGroup) {
  NodeAgent agent = joined_agent();
  Order order = run(agent, 0, 2);
  order.nodes = {0, 1, 3};
  order.members.insert(order.members.end(), {5, 6});
  const NodeAgent::Actions actions = agent.received(order);
  ASSERT_THAT(actions.send, SizeIs(2));
  EXPECT_EQ(actions.send[0].command.rank, 2);
  EXPECT_EQ(actions.send[1].command.rank, 3);
  EXPECT_EQ(actions.send[1].command.world_size, 6);
}

TEST(NodeAgent, WaitsWhileTheGroupRunsWithoutIt) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  Order order = run(agent, 4, 2);
  order.nodes = {0, 2};
  order.uncharged = 1;
  agent.joined(0, join(-1, -1));
  EXPECT_THAT(agent.received(order).send, IsEmpty());
  EXPECT_EQ(agent.report().generation, 4);
  EXPECT_EQ(agent.report().uncharged, 1);
  EXPECT_THAT(agent.exited(1, 1).spawn, ElementsAre(1)) << "no order to form a group will follow";
  for (int i = 0; i < kMaxStartFailures - 1; ++i) agent.exited(1, 1);
  EXPECT_THAT(agent.exited(1, 1).spawn, IsEmpty());
}

TEST(NodeAgent, IgnoresOlderOrders) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  agent.joined(0, join(-1, -1));
  agent.joined(1, join(-1, -1));
  const Order older = run(agent, 0, 2);
  agent.received(form(1, 3));
  EXPECT_THAT(agent.received(older).send, IsEmpty());
}

// ---- Several coordinators ------------------------------------------------------------------------------------------

// An agent whose ranks train in generation 2 of coordinator 9.
NodeAgent member_of_generation_2() {
  NodeAgent agent = joined_agent(2);
  Order order = run(agent, 2, 2);
  order.launchers = {6, 7};
  agent.received(order);
  return agent;
}

TEST(NodeAgent, ReportsItsGroupToAnotherCoordinator) {
  NodeAgent agent = member_of_generation_2();
  EXPECT_EQ(agent.report().member_of, 2);
  EXPECT_EQ(agent.report().group, -1) << "its coordinator has it";
  agent.connected();
  Order other = form(0, 1);
  other.coordinator = 10;
  for (const bool has_received : {false, true}) {
    if (has_received) {
      EXPECT_TRUE(agent.received(other).report);
    }
    const NodeReport report = agent.report();
    EXPECT_EQ(report.group, 2);
    EXPECT_THAT(report.launchers, ElementsAre(6, 7));
    EXPECT_EQ(report.first_coordinator, 9u);
  }
  other.sequence = 2;
  other.generation = 3;
  EXPECT_THAT(agent.received(other).send, SizeIs(2)) << "the ranks leave their group";
  EXPECT_EQ(agent.report().group, -1);
}

TEST(NodeAgent, IgnoresCoordinatorThatDoesNotKnowItsGroup) {
  for (const OrderKind kind : {OrderKind::kForm, OrderKind::kRun, OrderKind::kEnd}) {
    NodeAgent agent = member_of_generation_2();
    agent.connected();
    Order other = form(2, 1);
    other.coordinator = 10;
    other.kind = kind;
    other.nodes = {0, 1};
    other.launchers = {6, 7};
    const NodeAgent::Actions actions = agent.received(other);
    EXPECT_THAT(actions.send, IsEmpty());
    EXPECT_TRUE(actions.report);
    EXPECT_FALSE(actions.ended);
  }
}

TEST(NodeAgent, EndsWhenItWasReplaced) {
  NodeAgent agent = member_of_generation_2();
  Order end = form(0, 1);
  end.coordinator = 10;
  end.kind = OrderKind::kEnd;
  end.is_replaced = true;
  EXPECT_TRUE(agent.received(end).ended);
  EXPECT_THAT(agent.received(form(3, 9)).send, IsEmpty());
}

TEST(NodeAgent, ReportsTheNewestFence) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  JoinRequest request = join(-1, -1);
  request.fence = 4;
  agent.joined(0, request);
  agent.joined(1, join(-1, -1));
  EXPECT_EQ(agent.report().fence, 4);
}

// Another coordinator has formed a group of this generation, or of a later one.
TEST(NodeAgent, EndsIfAnotherGroupHoldsTheFence) {
  for (const int64_t fence : {1, 2, 3}) {
    NodeAgent agent = member_of_generation_2();
    JoinRequest request = join(2, 5);
    request.fence = fence;
    const NodeAgent::Actions actions = agent.joined(0, request);
    ASSERT_EQ(actions.ended.has_value(), fence >= 2) << fence;
    if (actions.ended) {
      EXPECT_TRUE(actions.ended->is_replaced);
    }
  }
}

TEST(NodeAgent, RespawnsFailedRankAndLetsTheOtherLeave) {
  NodeAgent agent = joined_agent();
  agent.received(run(agent, 0, 2));
  const ProcessId before = agent.state().slots[0].report.process;
  EXPECT_THAT(agent.exited(0, 137).spawn, IsEmpty());  // the coordinator decides
  const NodeAgent::Actions actions = agent.received(form(1, 3));
  EXPECT_THAT(actions.spawn, ElementsAre(0));
  ASSERT_THAT(actions.send, SizeIs(1));
  EXPECT_EQ(actions.send[0].rank, 1);
  EXPECT_EQ(actions.send[0].command.kind, RankCommand::Kind::kLeave);
  EXPECT_NE(agent.state().slots[0].report.process, before);
  EXPECT_EQ(agent.report().ranks[0].exit_code, 137);
}

// The launcher has killed a standby process that did not respond.
TEST(NodeAgent, AbandonedStartIsNotAFailure) {
  NodeAgent agent = starting_agent();
  const NodeReport before = agent.report();
  agent.abandon_start(1);
  EXPECT_THAT(agent.exited(1, 137).spawn, ElementsAre(1));
  EXPECT_EQ(agent.report().ranks, before.ranks);
  EXPECT_THAT(agent.exited(1, 137).spawn, ElementsAre(1)) << "killed by another program";
  EXPECT_NE(agent.report().ranks[1].process, before.ranks[1].process);
}

TEST(NodeAgent, AbandonedStartOfARankThatHasJoinedIsAFailure) {
  NodeAgent agent = starting_agent();
  const ProcessId before = agent.state().slots[1].report.process;
  agent.abandon_start(1);
  agent.joined(1, join(-1, -1));
  EXPECT_THAT(agent.exited(1, 137).spawn, ElementsAre(1));
  EXPECT_NE(agent.report().ranks[1].process, before);
  agent.abandon_start(1);
  agent.exited(1, 78);
  EXPECT_EQ(agent.report().ranks[1].phase, RankPhase::kExited) << "it ended by itself";
}

TEST(NodeAgent, ReplacedMemberIsNotAssigned) {
  NodeAgent agent = joined_agent();
  const Order order = run(agent, 0, 2);
  agent.exited(0, 137);  // starts again, as the group forms
  agent.joined(0, join(-1, -1));
  const NodeAgent::Actions actions = agent.received(order);
  ASSERT_THAT(actions.send, SizeIs(1));
  EXPECT_EQ(actions.send[0].rank, 1);
}

TEST(NodeAgent, PermanentFailureIsNotRepeated) {
  NodeAgent agent = starting_agent();
  EXPECT_THAT(agent.exited(0, 78).spawn, IsEmpty());
  EXPECT_EQ(agent.report().ranks[0].phase, RankPhase::kExited);
}

TEST(NodeAgent, TemporaryFailureIsRepeatedBeforeJoining) {
  NodeAgent agent = starting_agent();
  EXPECT_THAT(agent.exited(0, 75).spawn, ElementsAre(0));
  agent.joined(0, join(-1, -1));
  agent.joined(1, join(-1, -1));
  agent.received(run(agent, 0, 2));
  agent.exited(0, 75);
  EXPECT_THAT(agent.received(form(1, 3)).spawn, IsEmpty()) << "it was requested to stop";
}

TEST(NodeAgent, KillsOnlyTheNamedProcess) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  Order order = form(1, 2);
  order.kill = {agent.state().slots[1].report.process, 12345};
  EXPECT_THAT(agent.received(order).kill, ElementsAre(1));
}

TEST(NodeAgent, GroupPolicyStopsAllAndStartsAllTogether) {
  NodeAgent agent = agent_of(RestartPolicy::kGroup);
  EXPECT_THAT(agent.start().spawn, IsEmpty());
  agent.received(form(0, 1));
  EXPECT_THAT(agent.received(run(agent, 0, 2)).spawn, ElementsAre(0, 1));
  agent.exited(0, 1);
  const NodeAgent::Actions stop = agent.received(form(1, 3));
  EXPECT_THAT(stop.stop, ElementsAre(1));
  EXPECT_THAT(stop.spawn, IsEmpty());
  agent.exited(1, 143);
  for (const RankReport& rank : agent.report().ranks) EXPECT_EQ(rank.phase, RankPhase::kJoined);
  EXPECT_THAT(agent.received(run(agent, 1, 4)).spawn, ElementsAre(0, 1));
}

TEST(NodeAgent, GroupPolicyRestartsFinishedRanks) {
  NodeAgent agent = starting_agent(RestartPolicy::kGroup);
  agent.received(run(agent, 0, 2));
  agent.exited(0, 0);
  agent.exited(1, 1);
  agent.received(form(1, 3));
  EXPECT_THAT(agent.received(run(agent, 1, 4)).spawn, ElementsAre(0, 1));
}

TEST(NodeAgent, EndStopsEverything) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  Order order = form(1, 2);
  order.kind = OrderKind::kEnd;
  EXPECT_TRUE(agent.received(order).ended.has_value());
  EXPECT_FALSE(agent.received(form(2, 3)).ended.has_value());
  EXPECT_THAT(agent.exited(0, 137).spawn, IsEmpty());
}

TEST(NodeAgent, ReportsThatItIsStopping) {
  NodeAgent agent = agent_of(RestartPolicy::kRank);
  agent.start();
  EXPECT_FALSE(agent.report().is_stopping);
  EXPECT_TRUE(agent.stop().report);
  EXPECT_TRUE(agent.report().is_stopping);
}

}  // namespace
}  // namespace oarlock::recovery
