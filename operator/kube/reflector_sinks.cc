#include "operator/kube/reflector_sinks.h"

#include <fmt/format.h>

#include "operator/kube/json_access.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxObjectBytes = 8u << 20;  // etcd takes 1.5 MiB; JSON may be some times longer

bool ends_initial_events(const Json& object) {
  return text_at(member(member(object, "metadata"), "annotations"), "k8s.io/initial-events-end") == "true";
}

std::optional<ChangeType> change_of(const std::string& type) {
  if (type == "ADDED") return ChangeType::kAdded;
  if (type == "MODIFIED") return ChangeType::kModified;
  if (type == "DELETED") return ChangeType::kDeleted;
  return std::nullopt;
}

ApiError unknown_type(const std::string& type) {
  return unreadable(fmt::format("the watch has an event of the unknown type '{}'", type));
}

}  // namespace

ApiError unreadable(std::string what) {
  ApiError error;
  error.message = std::move(what);
  return error;
}

std::string version_of(const Json& object) { return text_at(member(object, "metadata"), "resourceVersion"); }

ListSink::ListSink(const FieldFilter& filter, ReflectorTarget& target)
    : filter_(filter), target_(target), splitter_(kMaxObjectBytes) {}

bool ListSink::write(std::string_view bytes) {
  const bool good = splitter_.feed(bytes, [this](std::string_view item) {
    Result<Json> object = filter_.parse(item, buffers_);
    if (!object) {
      problem_ = "an item of the list is not JSON: " + object.error().message;
      return false;
    }
    target_.replace_object(std::move(*object));
    return true;
  });
  if (splitter_.too_long()) problem_ = fmt::format("an item of the list is longer than {} bytes", kMaxObjectBytes);
  return good;
}

WatchSink::WatchSink(const FieldFilter& filter, ReflectorTarget& target, ReflectorObserver& observer,
                     std::string& last_version, bool initial)
    : filter_(filter),
      target_(target),
      observer_(observer),
      last_version_(last_version),
      splitter_(kMaxObjectBytes),
      initial_(initial) {}

bool WatchSink::fail(ApiError error) {
  problem_ = std::move(error);
  return false;
}

bool WatchSink::write(std::string_view bytes) {
  const bool good = splitter_.feed(bytes, [this](std::string_view line) { return event(line); });
  if (splitter_.too_long())
    problem_ = unreadable(fmt::format("a line of the watch is longer than {} bytes", kMaxObjectBytes));
  return good;
}

bool WatchSink::event(std::string_view line) {
  Result<Json> parsed = filter_.parse(line, buffers_);
  if (!parsed) return fail(unreadable("a line of the watch is not JSON: " + parsed.error().message));
  const std::string type = text_at(*parsed, "type");
  if (type == "ERROR") {
    const Json& status = member(*parsed, "object");
    const Json& code = member(status, "code");
    return fail(api_error(code.is_number_integer() ? code.get<int>() : 0, text_at(status, "reason"),
                          text_at(status, "message")));
  }
  if (!member(*parsed, "object").is_object()) return fail(unreadable("a line of the watch has no object"));
  ++events_;
  Json& object = (*parsed)["object"];
  const std::string version = version_of(object);
  return initial_ ? initial_event(type, std::move(object), version) : live_event(type, std::move(object), version);
}

// Their versions are in no order, and none of them is where a watch may go on.
bool WatchSink::initial_event(const std::string& type, Json object, const std::string& version) {
  if (type == "BOOKMARK") {
    if (!ends_initial_events(object)) {
      ignored_initial_ = true;
      return fail(unreadable("the server does not mark the end of the initial events"));
    }
    if (version.empty()) return fail(unreadable("the bookmark after the initial events has no resourceVersion"));
    target_.commit_replace(version);
    last_version_ = version;
    initial_ = false;
    observer_.on_synced();
    return true;
  }
  const auto change = change_of(type);
  if (!change) return fail(unknown_type(type));
  if (*change == ChangeType::kDeleted) {
    target_.replace_deleted(std::move(object));
  } else {
    target_.replace_object(std::move(object));
  }
  return true;
}

bool WatchSink::live_event(const std::string& type, Json object, const std::string& version) {
  // A watch only goes forward. Where it does not, the store was restored from a backup or another server answers: what
  // is known may be of a future that never was, so all of it is read anew.
  if (!version.empty() && compare_resource_versions(version, last_version_) < 0) {
    ApiError error = unreadable(fmt::format(
        "the watch went back from resourceVersion {} to {}: reading everything anew", last_version_, version));
    error.kind = ApiError::Kind::kExpired;
    return fail(std::move(error));
  }
  if (type == "BOOKMARK") {
    target_.bookmark(version);
  } else if (const auto change = change_of(type)) {
    target_.change(*change, std::move(object), version);
  } else {
    return fail(unknown_type(type));
  }
  if (!version.empty()) last_version_ = version;
  return true;
}

}  // namespace oarlock::kube
