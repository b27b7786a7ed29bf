#include "recovery/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_access.h"
#include "common/status_macros.h"

namespace oarlock::recovery {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 4;
constexpr size_t kMaxHostLength = 253;

template <typename Enum>
struct EnumName {
  Enum value;
  std::string_view name;
};
constexpr std::array kPhaseNames{EnumName{RankPhase::kStarting, "starting"}, EnumName{RankPhase::kJoined, "joined"},
                                 EnumName{RankPhase::kRunning, "running"}, EnumName{RankPhase::kExited, "exited"},
                                 EnumName{RankPhase::kFinished, "finished"}};
constexpr std::array kOrderNames{EnumName{OrderKind::kForm, "form"}, EnumName{OrderKind::kRun, "run"},
                                 EnumName{OrderKind::kEnd, "end"}};
constexpr std::array kCommandNames{EnumName{RankCommand::Kind::kLeave, "leave"},
                                   EnumName{RankCommand::Kind::kAssign, "assign"},
                                   EnumName{RankCommand::Kind::kEnd, "end"}};

template <typename Enum, size_t n>
std::string name_of(const std::array<EnumName<Enum>, n>& names, Enum value) {
  for (const auto& entry : names) {
    if (entry.value == value) return std::string(entry.name);
  }
  return "";
}

// Truncates to `limit` bytes at the boundary of a character. Bytes that are not UTF-8 are replaced first, because each
// of them becomes three bytes.
std::string limited(const std::string& text, size_t limit) {
  std::string valid = Json::parse(dump_json(text)).get<std::string>();
  if (valid.size() <= limit) return valid;
  size_t size = limit;
  while (size > 0 && (static_cast<unsigned char>(valid[size]) & 0xC0) == 0x80) --size;
  return valid.substr(0, size);
}

// Reads members of an object, and keeps the first error.
class Reader {
 public:
  explicit Reader(const Json& json) : json_(json) {
    if (!json.is_object()) fail_with("the message is not a JSON object");
  }

  template <typename T>
  void integer(const char* key, T& target, T smallest, T largest) {
    const Json* value = find(key);
    if (value == nullptr) return;
    const bool in_type = value->is_number_unsigned()  ? std::in_range<T>(value->get<uint64_t>())
                         : value->is_number_integer() ? std::in_range<T>(value->get<int64_t>())
                                                      : false;
    const T number = in_type ? value->get<T>() : T{};
    if (!in_type || number < smallest || number > largest) return fail_with(fmt::format("'{}' is out of range", key));
    target = number;
  }
  void generation(const char* key, int64_t& target) {
    integer<int64_t>(key, target, -1, std::numeric_limits<int64_t>::max() / 2);
  }
  void id(const char* key, uint64_t& target) {
    integer<uint64_t>(key, target, 0, std::numeric_limits<uint64_t>::max());
  }
  void flag(const char* key, bool& target) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_boolean()) return fail_with(fmt::format("'{}' is neither true nor false", key));
    target = value->get<bool>();
  }
  void text(const char* key, std::string& target, size_t limit) {
    const Json* value = find(key);
    if (value == nullptr) return;
    if (!value->is_string() || value->get_ref<const std::string&>().size() > limit)
      return fail_with(fmt::format("'{}' is not a text of at most {} bytes", key, limit));
    target = value->get<std::string>();
  }
  template <typename Enum, size_t n>
  void choice(const char* key, Enum& target, const std::array<EnumName<Enum>, n>& names) {
    const Json* value = find(key);
    if (value == nullptr) return;
    for (const auto& entry : names) {
      if (!value->is_string() || value->get_ref<const std::string&>() != entry.name) continue;
      target = entry.value;
      return;
    }
    fail_with(fmt::format("'{}' has an unknown value", key));
  }
  // Numbers in ascending order.
  void ascending(const char* key, std::vector<int>& target) {
    const Json* list = array(key, kMaxWorldSize);
    if (list == nullptr) return;
    for (const Json& value : *list) {
      const bool in_range = value.is_number_unsigned() && value.get<uint64_t>() <= kMaxWorldSize;
      const int number = in_range ? value.get<int>() : -1;
      if (!in_range || (!target.empty() && number <= target.back()))
        return fail_with(fmt::format("'{}' is not a list of ascending numbers", key));
      target.push_back(number);
    }
  }
  void ids(const char* key, std::vector<uint64_t>& target) {
    const Json* list = array(key, kMaxWorldSize);
    if (list == nullptr) return;
    for (const Json& value : *list) {
      if (!value.is_number_unsigned()) return fail_with(fmt::format("'{}' contains a value that is not an id", key));
      target.push_back(value.get<uint64_t>());
    }
  }
  const Json* array(const char* key, size_t limit) {
    const Json* value = find(key);
    if (value == nullptr) return nullptr;
    if (value->is_array() && value->size() <= limit) return value;
    fail_with(fmt::format("'{}' is not a list of at most {} values", key, limit));
    return nullptr;
  }
  void fail_with(std::string message) {
    if (error_.empty()) error_ = std::move(message);
  }
  template <typename T>
  Result<T> finish(T value) const {
    if (!error_.empty()) return fail(ExitCode::kDataErr, "regroup message: " + error_);
    return value;
  }
  const std::string& error() const { return error_; }
  // Members that earlier versions do not send are read only if they exist.
  bool has(const char* key) const { return error_.empty() && json_.contains(key); }

 private:
  // All other members are required.
  const Json* find(const char* key) {
    if (!error_.empty()) return nullptr;
    const auto it = json_.find(key);
    if (it != json_.end()) return &*it;
    fail_with(fmt::format("'{}' is missing", key));
    return nullptr;
  }

  const Json& json_;
  std::string error_;
};

Result<Json> parse(std::string_view text) {
  Json json = parse_untrusted_json(text, kMaxLineLength, kMaxDepth);
  if (json.is_discarded()) return fail(ExitCode::kDataErr, "regroup message: not JSON, too long, or too deeply nested");
  return json;
}

Json json_of(const RankReport& report) {
  return {{"phase", name_of(kPhaseNames, report.phase)},
          {"process", report.process},
          {"generation", report.generation},
          {"step", report.step},
          {"digest", limited(report.digest, kMaxDigestLength)},
          {"reason", limited(report.reason, kMaxTextLength)},
          {"exitCode", report.exit_code}};
}

}  // namespace

std::string to_json(const NodeReport& report) {
  Json ranks = Json::array();
  for (const RankReport& rank : report.ranks) ranks.push_back(json_of(rank));
  return dump_json({{"node", report.node},
                    {"launcher", report.launcher},
                    {"sequence", report.sequence},
                    {"generation", report.generation},
                    {"uncharged", report.uncharged},
                    {"coordinator", report.coordinator},
                    {"orderSequence", report.order_sequence},
                    {"firstCoordinator", report.first_coordinator},
                    {"stopping", report.is_stopping},
                    {"ranks", std::move(ranks)},
                    {"memberOf", report.member_of},
                    {"group", report.group},
                    {"launchers", report.launchers},
                    {"fence", report.fence}});
}

Result<NodeReport> node_report_from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse(text));
  Reader reader(json);
  NodeReport report;
  reader.integer("node", report.node, 0, static_cast<int>(kMaxWorldSize));
  reader.id("launcher", report.launcher);
  reader.id("sequence", report.sequence);
  reader.generation("generation", report.generation);
  reader.generation("uncharged", report.uncharged);
  reader.id("coordinator", report.coordinator);
  reader.id("orderSequence", report.order_sequence);
  report.first_coordinator = report.coordinator;
  if (reader.has("firstCoordinator")) reader.id("firstCoordinator", report.first_coordinator);
  reader.flag("stopping", report.is_stopping);
  const Json* ranks = reader.array("ranks", kMaxRanksPerNode);
  if (ranks == nullptr) return reader.finish(report);
  for (const Json& member : *ranks) {
    Reader rank_reader(member);
    RankReport& rank = report.ranks.emplace_back();
    rank_reader.choice("phase", rank.phase, kPhaseNames);
    rank_reader.id("process", rank.process);
    rank_reader.generation("generation", rank.generation);
    rank_reader.generation("step", rank.step);
    rank_reader.text("digest", rank.digest, kMaxDigestLength);
    rank_reader.text("reason", rank.reason, kMaxTextLength);
    rank_reader.integer("exitCode", rank.exit_code, 0, 255);
    if (!rank_reader.error().empty()) reader.fail_with(rank_reader.error());
    report.member_of = std::max(report.member_of, rank.generation);
  }
  if (reader.has("memberOf")) reader.generation("memberOf", report.member_of);
  if (reader.has("group")) reader.generation("group", report.group);
  if (reader.has("launchers")) reader.ids("launchers", report.launchers);
  if (reader.has("fence")) reader.generation("fence", report.fence);
  return reader.finish(report);
}

std::string to_json(const Order& order) {
  return dump_json({{"coordinator", order.coordinator},
                    {"sequence", order.sequence},
                    {"kind", name_of(kOrderNames, order.kind)},
                    {"generation", order.generation},
                    {"uncharged", order.uncharged},
                    {"growth", order.is_growth},
                    {"respawn", order.respawn},
                    {"kill", order.kill},
                    {"nodes", order.nodes},
                    {"launchers", order.launchers},
                    {"members", order.members},
                    {"donor", order.donor},
                    {"step", order.step},
                    {"reason", limited(order.reason, kMaxTextLength)},
                    {"success", order.success},
                    {"replaced", order.is_replaced}});
}

Result<Order> order_from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse(text));
  Reader reader(json);
  Order order;
  reader.id("coordinator", order.coordinator);
  reader.id("sequence", order.sequence);
  reader.choice("kind", order.kind, kOrderNames);
  reader.generation("generation", order.generation);
  reader.generation("uncharged", order.uncharged);
  reader.flag("growth", order.is_growth);
  reader.flag("respawn", order.respawn);
  reader.ids("kill", order.kill);
  reader.ascending("nodes", order.nodes);
  reader.ids("members", order.members);
  reader.integer("donor", order.donor, -1, static_cast<int>(kMaxWorldSize));
  reader.generation("step", order.step);
  reader.text("reason", order.reason, kMaxTextLength);
  reader.flag("success", order.success);
  if (reader.has("launchers")) reader.ids("launchers", order.launchers);
  if (reader.has("replaced")) reader.flag("replaced", order.is_replaced);
  return reader.finish(order);
}

std::string to_json(const JoinRequest& request) {
  return dump_json({{"generation", request.generation},
                    {"step", request.step},
                    {"digest", limited(request.digest, kMaxDigestLength)},
                    {"reason", limited(request.reason, kMaxTextLength)},
                    {"standbyProcess", request.standby_process},
                    {"fence", request.fence}});
}

Result<JoinRequest> join_request_from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse(text));
  Reader reader(json);
  JoinRequest request;
  reader.generation("generation", request.generation);
  reader.generation("step", request.step);
  reader.text("digest", request.digest, kMaxDigestLength);
  reader.text("reason", request.reason, kMaxTextLength);
  if (json.contains("standbyProcess"))  // programs that cannot stand by need not send it
    reader.integer("standbyProcess", request.standby_process, 0, std::numeric_limits<int>::max());
  if (reader.has("fence")) reader.generation("fence", request.fence);
  return reader.finish(request);
}

std::string to_json(const RankCommand& command) {
  return dump_json({{"kind", name_of(kCommandNames, command.kind)},
                    {"generation", command.generation},
                    {"growth", command.is_growth},
                    {"rank", command.rank},
                    {"worldSize", command.world_size},
                    {"donor", command.donor},
                    {"step", command.step},
                    {"storeHost", command.store_host},
                    {"storePort", command.store_port},
                    {"storePrefix", command.store_prefix},
                    {"reason", limited(command.reason, kMaxTextLength)}});
}

Result<RankCommand> rank_command_from_json(std::string_view text) {
  ASSIGN_OR_RETURN(const Json json, parse(text));
  Reader reader(json);
  RankCommand command;
  reader.choice("kind", command.kind, kCommandNames);
  reader.generation("generation", command.generation);
  reader.flag("growth", command.is_growth);
  reader.integer("rank", command.rank, 0, static_cast<int>(kMaxWorldSize));
  reader.integer("worldSize", command.world_size, 1, static_cast<int>(kMaxWorldSize));
  reader.integer("donor", command.donor, -1, static_cast<int>(kMaxWorldSize));
  reader.generation("step", command.step);
  reader.text("storeHost", command.store_host, kMaxHostLength);
  reader.integer("storePort", command.store_port, 0, 65535);
  reader.text("storePrefix", command.store_prefix, kMaxTextLength);
  reader.text("reason", command.reason, kMaxTextLength);
  return reader.finish(command);
}

}  // namespace oarlock::recovery
