#include "recovery/messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>

#include "common/json_access.h"

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

// Each message has one description, which a Reader and a Writer visit.
//
// Reads members of an object, and keeps the first error.
class Reader {
 public:
  template <typename Message>
  using Visited = Message;
  static constexpr bool kReads = true;

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
  template <typename Item>
  void list(const char* key, std::vector<Item>& target, size_t limit) {
    const Json* items = array(key, limit);
    if (items == nullptr) return;
    for (const Json& item : *items) {
      Reader reader(item);
      describe(reader, target.emplace_back());
      if (!reader.error_.empty()) fail_with(reader.error_);
    }
  }
  // Members that earlier versions do not send are visited only if they exist.
  bool has(const char* key) const { return error_.empty() && json_.contains(key); }

  template <typename T>
  Result<T> finish(T value) const {
    if (!error_.empty()) return fail(ExitCode::kDataErr, "regroup message: " + error_);
    return value;
  }

 private:
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

// Writes members of an object.
class Writer {
 public:
  template <typename Message>
  using Visited = const Message;
  static constexpr bool kReads = false;

  template <typename T>
  void integer(const char* key, T value, T, T) {
    json_[key] = value;
  }
  void generation(const char* key, int64_t value) { json_[key] = value; }
  void id(const char* key, uint64_t value) { json_[key] = value; }
  void flag(const char* key, bool value) { json_[key] = value; }
  void text(const char* key, const std::string& value, size_t limit) { json_[key] = limited(value, limit); }
  template <typename Enum, size_t n>
  void choice(const char* key, Enum value, const std::array<EnumName<Enum>, n>& names) {
    json_[key] = name_of(names, value);
  }
  void ascending(const char* key, const std::vector<int>& values) { json_[key] = values; }
  void ids(const char* key, const std::vector<uint64_t>& values) { json_[key] = values; }
  template <typename Item>
  void list(const char* key, const std::vector<Item>& items, size_t) {
    Json list = Json::array();
    for (const Item& item : items) {
      Writer writer;
      describe(writer, item);
      list.push_back(std::move(writer.json_));
    }
    json_[key] = std::move(list);
  }
  static bool has(const char*) { return true; }

  std::string finish() const { return dump_json(json_); }

 private:
  Json json_ = Json::object();
};

template <typename Visitor>
void describe(Visitor& visitor, typename Visitor::template Visited<RankReport>& rank) {
  visitor.choice("phase", rank.phase, kPhaseNames);
  visitor.id("process", rank.process);
  visitor.generation("generation", rank.generation);
  visitor.generation("step", rank.step);
  visitor.text("digest", rank.digest, kMaxDigestLength);
  visitor.text("reason", rank.reason, kMaxTextLength);
  visitor.integer("exitCode", rank.exit_code, 0, 255);
}

template <typename Visitor>
void describe(Visitor& visitor, typename Visitor::template Visited<NodeReport>& report) {
  visitor.integer("node", report.node, 0, static_cast<int>(kMaxWorldSize));
  visitor.id("launcher", report.launcher);
  visitor.id("sequence", report.sequence);
  visitor.generation("generation", report.generation);
  visitor.generation("uncharged", report.uncharged);
  visitor.id("coordinator", report.coordinator);
  visitor.id("orderSequence", report.order_sequence);
  if constexpr (Visitor::kReads) report.first_coordinator = report.coordinator;
  if (visitor.has("firstCoordinator")) visitor.id("firstCoordinator", report.first_coordinator);
  visitor.flag("stopping", report.is_stopping);
  visitor.list("ranks", report.ranks, kMaxRanksPerNode);
  if constexpr (Visitor::kReads) {
    for (const RankReport& rank : report.ranks) report.member_of = std::max(report.member_of, rank.generation);
  }
  if (visitor.has("memberOf")) visitor.generation("memberOf", report.member_of);
  if (visitor.has("group")) visitor.generation("group", report.group);
  if (visitor.has("launchers")) visitor.ids("launchers", report.launchers);
  if (visitor.has("fence")) visitor.generation("fence", report.fence);
}

template <typename Visitor>
void describe(Visitor& visitor, typename Visitor::template Visited<Order>& order) {
  visitor.id("coordinator", order.coordinator);
  visitor.id("sequence", order.sequence);
  visitor.choice("kind", order.kind, kOrderNames);
  visitor.generation("generation", order.generation);
  visitor.generation("uncharged", order.uncharged);
  visitor.flag("growth", order.is_growth);
  visitor.flag("respawn", order.respawn);
  visitor.ids("kill", order.kill);
  visitor.ascending("nodes", order.nodes);
  visitor.ids("members", order.members);
  visitor.integer("donor", order.donor, -1, static_cast<int>(kMaxWorldSize));
  visitor.generation("step", order.step);
  visitor.text("reason", order.reason, kMaxTextLength);
  visitor.flag("success", order.success);
  if (visitor.has("launchers")) visitor.ids("launchers", order.launchers);
  if (visitor.has("replaced")) visitor.flag("replaced", order.is_replaced);
}

template <typename Visitor>
void describe(Visitor& visitor, typename Visitor::template Visited<JoinRequest>& request) {
  visitor.generation("generation", request.generation);
  visitor.generation("step", request.step);
  visitor.text("digest", request.digest, kMaxDigestLength);
  visitor.text("reason", request.reason, kMaxTextLength);
  if (visitor.has("standbyProcess"))  // programs that cannot stand by need not send it
    visitor.integer("standbyProcess", request.standby_process, 0, std::numeric_limits<int>::max());
  if (visitor.has("fence")) visitor.generation("fence", request.fence);
}

template <typename Visitor>
void describe(Visitor& visitor, typename Visitor::template Visited<RankCommand>& command) {
  visitor.choice("kind", command.kind, kCommandNames);
  visitor.generation("generation", command.generation);
  visitor.flag("growth", command.is_growth);
  visitor.integer("rank", command.rank, 0, static_cast<int>(kMaxWorldSize));
  visitor.integer("worldSize", command.world_size, 1, static_cast<int>(kMaxWorldSize));
  visitor.integer("donor", command.donor, -1, static_cast<int>(kMaxWorldSize));
  visitor.generation("step", command.step);
  visitor.text("storeHost", command.store_host, kMaxHostLength);
  visitor.integer("storePort", command.store_port, 0, 65535);
  visitor.text("storePrefix", command.store_prefix, kMaxTextLength);
  visitor.text("reason", command.reason, kMaxTextLength);
}

template <typename Message>
std::string written(const Message& message) {
  Writer writer;
  describe(writer, message);
  return writer.finish();
}

template <typename Message>
Result<Message> read(std::string_view text) {
  const Json json = parse_untrusted_json(text, kMaxLineLength, kMaxDepth);
  if (json.is_discarded()) return fail(ExitCode::kDataErr, "regroup message: not JSON, too long, or too deeply nested");
  Reader reader(json);
  Message message;
  describe(reader, message);
  return reader.finish(std::move(message));
}

}  // namespace

std::string to_json(const NodeReport& report) { return written(report); }
std::string to_json(const Order& order) { return written(order); }
std::string to_json(const JoinRequest& request) { return written(request); }
std::string to_json(const RankCommand& command) { return written(command); }

Result<NodeReport> node_report_from_json(std::string_view text) { return read<NodeReport>(text); }
Result<Order> order_from_json(std::string_view text) { return read<Order>(text); }
Result<JoinRequest> join_request_from_json(std::string_view text) { return read<JoinRequest>(text); }
Result<RankCommand> rank_command_from_json(std::string_view text) { return read<RankCommand>(text); }

}  // namespace oarlock::recovery
