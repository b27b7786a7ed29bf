// Encoding of the regroup protocol, and its limits.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "recovery/line_channel.h"
#include "recovery/messages.h"

#include <sys/socket.h>

namespace oarlock::recovery {
namespace {

NodeReport sample_report() {
  RankReport rank;
  rank.phase = RankPhase::kExited;
  rank.process = (uint64_t{1} << 60) + 3;
  rank.generation = 4;
  rank.reason = "connection closed by rank 3 \"\n\x01";
  rank.exit_code = 137;
  return {.node = 2,
          .launcher = 99,
          .sequence = 7,
          .generation = 4,
          .uncharged = 2,
          .coordinator = 5,
          .order_sequence = 6,
          .first_coordinator = 3,
          .is_stopping = true,
          .ranks = {rank},
          .member_of = 1,
          .group = 4,
          .launchers = {98, 0, 99},
          .fence = 3};
}

TEST(RegroupMessages, RoundTrip) {
  const NodeReport report = sample_report();
  EXPECT_EQ(node_report_from_json(to_json(report)).value(), report);
  Order order;
  order.coordinator = 1;
  order.sequence = 2;
  order.kind = OrderKind::kRun;
  order.generation = 3;
  order.uncharged = 1;
  order.is_growth = true;
  order.nodes = {0, 2};
  order.launchers = {98, 99};
  order.is_replaced = true;
  order.members = {4, UINT64_MAX};
  order.donor = 1;
  order.step = 1'000'000;
  EXPECT_EQ(order_from_json(to_json(order)).value(), order);
  const JoinRequest request{.generation = 1, .step = 2, .digest = "abc", .reason = "x", .fence = 3};
  EXPECT_EQ(join_request_from_json(to_json(request)).value(), request);
  RankCommand command;
  command.kind = RankCommand::Kind::kAssign;
  command.is_growth = true;
  command.store_host = "node0";
  command.store_port = 29500;
  EXPECT_EQ(rank_command_from_json(to_json(command)).value(), command);
}

// Launchers of two versions of one job: a pod is replaced after an update of the image.
TEST(RegroupMessages, FieldsOfLaterVersionsAreOptional) {
  const auto without = [](std::string text, const std::vector<std::string>& fields) {
    auto json = nlohmann::json::parse(text);
    for (const std::string& field : fields) EXPECT_EQ(json.erase(field), 1u) << field;
    return json.dump();
  };
  NodeReport report = sample_report();
  const auto old =
      node_report_from_json(without(to_json(report), {"firstCoordinator", "memberOf", "group", "launchers", "fence"}));
  report.first_coordinator = report.coordinator;
  report.member_of = report.ranks[0].generation;
  report.group = report.fence = -1;
  report.launchers.clear();
  EXPECT_EQ(old.value(), report);
  EXPECT_EQ(order_from_json(without(to_json(Order{}), {"launchers", "replaced"})).value(), Order{});
  EXPECT_EQ(join_request_from_json(without(to_json(JoinRequest{}), {"fence"})).value(), JoinRequest{});
}

TEST(RegroupMessages, ReasonIsTruncatedAtCharacter) {
  JoinRequest request;
  for (size_t i = 0; i < kMaxTextLength; ++i) request.reason += "\xc3\xa4";
  const auto parsed = join_request_from_json(to_json(request));
  ASSERT_TRUE(parsed);
  EXPECT_LE(parsed->reason.size(), kMaxTextLength);
  EXPECT_EQ(parsed->reason.size() % 2, 0u);
}

TEST(RegroupMessages, ReasonWithBytesThatAreNotUtf8IsAccepted) {
  JoinRequest request;
  request.reason.assign(kMaxTextLength, '\xff');
  const auto parsed = join_request_from_json(to_json(request));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->reason.size(), kMaxTextLength);
}

TEST(RegroupMessages, RejectsInvalidInput) {
  const std::string valid = to_json(sample_report());
  const auto with = [&](std::string from, std::string to) {
    std::string text = valid;
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  EXPECT_TRUE(node_report_from_json(valid));
  for (const std::string& text :
       {std::string(""), std::string("[]"), std::string("{}"), std::string("null"), std::string("{\"node\":1"),
        with("\"node\":2", "\"node\":-1"), with("\"node\":2", "\"node\":2000000000"),
        with("\"node\":2", "\"node\":\"2\""), with("\"exitCode\":137", "\"exitCode\":256"),
        with("\"phase\":\"exited\"", "\"phase\":\"gone\""), with("\"phase\":\"exited\"", "\"phase\":3"),
        with("\"generation\":4", "\"generation\":-2"), with("\"generation\":4", "\"generation\":1e30"),
        with("\"launcher\":99", "\"launcher\":-1"), with("\"stopping\":true", "\"stopping\":1"),
        with("\"digest\":\"\"", "\"digest\":\"" + std::string(200, 'a') + "\""), with("\"ranks\":[", "\"ranks\":[1,"),
        with("\"ranks\":[", "\"ranks\":[[[[[[[]]]]]],")}) {
    const auto parsed = node_report_from_json(text);
    EXPECT_FALSE(parsed) << text;
    EXPECT_EQ(parsed ? ExitCode::kOk : parsed.error().code, ExitCode::kDataErr);
  }
}

TEST(RegroupMessages, NodesOfAnOrderAreAscending) {
  Order order;
  order.kind = OrderKind::kRun;
  order.nodes = {0, 7};
  const std::string valid = to_json(order);
  EXPECT_TRUE(order_from_json(valid));
  for (const char* nodes : {"[7,0]", "[0,0]", "[-1]", "[0.5]", "[\"0\"]", "[2000000000]", "7"}) {
    std::string text = valid;
    EXPECT_FALSE(order_from_json(text.replace(text.find("[0,7]"), 5, nodes))) << nodes;
  }
}

TEST(RegroupMessages, ChannelLimitsLines) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LineChannel sender{FileDescriptor(ends[0]), 100};
  LineChannel receiver{FileDescriptor(ends[1]), 10};
  sender.send("one");
  sender.send("two");
  const std::vector<std::string> lines = receiver.read();
  EXPECT_EQ(lines, (std::vector<std::string>{"one", "two"}));
  sender.send(std::string(11, 'x'));
  EXPECT_TRUE(receiver.read().empty());
  EXPECT_FALSE(receiver.is_open());
}

TEST(RegroupMessages, LimitRisesAfterFirstLine) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LineChannel sender{FileDescriptor(ends[0]), 100};
  LineChannel receiver{FileDescriptor(ends[1]), 10};
  sender.send("hello");
  sender.send(std::string(1000, 'x'));
  EXPECT_EQ(receiver.read(), (std::vector<std::string>{"hello"}));
  receiver.set_max_line(2000);
  EXPECT_EQ(receiver.read(), (std::vector<std::string>{std::string(1000, 'x')}));
}

TEST(RegroupMessages, ChannelClosesWhenPeerDoesNotRead) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  LineChannel sender{FileDescriptor(ends[0]), 100};
  const FileDescriptor silent(ends[1]);
  const std::string line(size_t{1} << 20, 'x');
  for (int i = 0; i < 100 && sender.is_open(); ++i) sender.send(line);
  EXPECT_FALSE(sender.is_open());
}

TEST(RegroupMessages, ComparesSecrets) {
  EXPECT_TRUE(is_equal_secret("abc", "abc"));
  EXPECT_FALSE(is_equal_secret("abc", "abd"));
  EXPECT_FALSE(is_equal_secret("abc", "ab"));
  EXPECT_FALSE(is_equal_secret("", "a"));
  EXPECT_FALSE(is_equal_secret("a", ""));
}

}  // namespace
}  // namespace oarlock::recovery
