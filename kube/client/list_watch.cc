#include "kube/client/list_watch.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/json_access.h"

namespace oarlock::kube {

bool LineSplitter::feed(std::string_view bytes, const TextHandler& on_line) {
  while (!bytes.empty()) {
    const size_t end = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, end);
    if (skipped_bytes_ > 0 || partial_.size() + piece.size() > limit_) {
      if (skipped_bytes_ == 0) ++skipped_;
      skipped_bytes_ += partial_.size() + piece.size();
      std::string().swap(partial_);
      is_endless_ = skipped_bytes_ > limit_ * kSkipFactor;
      if (is_endless_) return false;
      if (end == std::string_view::npos) return true;
      skipped_bytes_ = 0;
      bytes.remove_prefix(end + 1);
      continue;
    }
    if (end == std::string_view::npos) {
      partial_ += piece;
      return true;
    }
    bytes.remove_prefix(end + 1);
    if (partial_.empty()) {
      if (!piece.empty() && !on_line(piece)) return false;
    } else {
      partial_ += piece;
      const bool more = on_line(partial_);
      partial_.clear();
      if (!more) return false;
    }
  }
  return true;
}

bool ItemSplitter::add_to_item(std::string_view piece) {
  if (skipped_bytes_ == 0 && item_.size() + piece.size() <= limit_) {
    item_ += piece;
    return true;
  }
  if (skipped_bytes_ == 0) ++skipped_;
  skipped_bytes_ += item_.size() + piece.size();
  std::string().swap(item_);
  is_endless_ = skipped_bytes_ > limit_ * kSkipFactor;
  return !is_endless_;
}

inline void ItemSplitter::scan_string(char c) {
  if (escaped_) {
    escaped_ = false;
  } else if (c == '\\') {
    escaped_ = true;
  } else if (c == '"') {
    in_string_ = false;
  }
}

void ItemSplitter::scan_envelope(char c) {
  if (in_string_) {
    if (depth_ == 1 && (escaped_ || c != '"')) last_key_ += c;
    scan_string(c);
  } else if (c == '"') {
    in_string_ = true;
    if (depth_ == 1) last_key_.clear();
  } else if (c == '{' || c == '[') {
    in_items_ = c == '[' && depth_ == 1 && last_key_ == "items";
    ++depth_;
  } else if (c == '}' || c == ']') {
    --depth_;
    finished_ = depth_ == 0;
  } else if (c == ',' && depth_ == 1) {
    last_key_.clear();
  }
  envelope_ += c;
}

bool ItemSplitter::feed(std::string_view bytes, const TextHandler& on_item) {
  size_t begin = 0;  // of the current item's text within these bytes
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (!in_items_) {
      scan_envelope(c);
      begin = i + 1;
      if (envelope_.size() > limit_) {
        is_endless_ = true;
        return false;
      }
      continue;
    }
    if (in_string_) {
      scan_string(c);
      continue;
    }
    const bool between = depth_ == 2 && item_.empty() && skipped_bytes_ == 0;
    if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      if (between && begin <= i) begin = i;  // drops commas and spaces between items
      ++depth_;
    } else if (c == '}' || c == ']') {
      --depth_;
      if (depth_ == 1) {  // the end of the array
        in_items_ = false;
        last_key_.clear();
        envelope_ += c;
        begin = i + 1;
      } else if (depth_ == 2) {
        const std::string_view piece = bytes.substr(begin, i + 1 - begin);
        begin = i + 1;
        if (item_.empty() && skipped_bytes_ == 0 && piece.size() <= limit_) {
          if (!on_item(piece)) return false;
          continue;
        }
        if (!add_to_item(piece)) return false;
        const bool more = skipped_bytes_ > 0 || on_item(item_);
        item_.clear();
        skipped_bytes_ = 0;
        if (!more) return false;
      }
    }
  }
  return !in_items_ || depth_ <= 2 || add_to_item(bytes.substr(begin));
}

namespace {

using Json = nlohmann::json;

constexpr size_t kMaxObjectBytes = 8u << 20;  // etcd accepts 1.5 MiB; JSON may be several times longer

FieldFilter event_of(const FieldFilter& object) {
  return object.nested("object", {"type", "object.code", "object.reason", "object.message",
                                  R"(object.metadata.annotations.k8s\.io/initial-events-end)"});
}

bool ends_initial_events(const Json& object) {
  return text_at(member(member(object, "metadata"), "annotations"), "k8s.io/initial-events-end") == "true";
}

std::optional<ChangeType> change_of(const std::string& type) {
  if (type == "ADDED") return ChangeType::kAdded;
  if (type == "MODIFIED") return ChangeType::kModified;
  if (type == "DELETED") return ChangeType::kDeleted;
  return std::nullopt;
}

}  // namespace

ObjectFilters event_filters(const ObjectFilters& objects) {
  return {event_of(objects.fields), event_of(objects.salvage)};
}

ApiError decode_error(std::string message) {
  ApiError error;
  error.message = std::move(message);
  return error;
}

std::string version_of(const Json& object) {
  std::string version = text_at(member(object, "metadata"), "resourceVersion");
  return version.size() <= kMaxVersionBytes ? version : "";
}

std::optional<FilteredObject> ObjectReader::read(std::string_view text) {
  Result<Json> whole = filters_.fields.parse(text, buffers_);
  if (whole) return FilteredObject{std::move(*whole)};
  Result<Json> salvaged = filters_.salvage.parse(text, buffers_);
  if (salvaged) return FilteredObject{std::move(*salvaged), whole.error()};
  report_skipped(fmt::format("an object that is not JSON was ignored: {}", whole.error().message));
  return std::nullopt;
}

void ObjectReader::report_skipped(std::string reason) { observer_.on_skipped({ExitCode::kDataErr, std::move(reason)}); }

ListSink::ListSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer)
    : target_(target), splitter_(kMaxObjectBytes), reader_(filters, observer) {}

bool ListSink::write(std::string_view bytes) {
  const int before = splitter_.skipped();
  const bool good = splitter_.feed(bytes, [this](std::string_view item) {
    ++items_;
    if (std::optional<FilteredObject> object = reader_.read(item)) target_.replace_object(std::move(*object));
    const std::optional<std::string> excess = target_.exceeded_limit();
    if (excess) problem_ = *excess;
    return !excess;
  });
  if (splitter_.skipped() > before)
    reader_.report_skipped(fmt::format("an item of the list was ignored: it is longer than {} bytes", kMaxObjectBytes));
  if (splitter_.is_endless())
    problem_ = fmt::format("an item of the list is longer than {} bytes", kMaxObjectBytes * kSkipFactor);
  return good;
}

WatchSink::WatchSink(const ObjectFilters& filters, ReflectorTarget& target, ReflectorObserver& observer,
                     std::string& last_version, bool initial)
    : target_(target),
      observer_(observer),
      last_version_(last_version),
      splitter_(kMaxObjectBytes),
      reader_(filters, observer),
      initial_(initial) {}

bool WatchSink::fail(ApiError error) {
  problem_ = std::move(error);
  return false;
}

bool WatchSink::write(std::string_view bytes) {
  const int before = splitter_.skipped();
  const bool good = splitter_.feed(bytes, [this](std::string_view line) { return event(line); });
  if (splitter_.skipped() > before)
    reader_.report_skipped(fmt::format("a line of the watch was ignored: it is longer than {} bytes", kMaxObjectBytes));
  if (splitter_.is_endless())
    problem_ = decode_error(fmt::format("a line of the watch is longer than {} bytes", kMaxObjectBytes * kSkipFactor));
  return good;
}

bool WatchSink::event(std::string_view line) {
  ++events_;
  if (!initial_ && ++live_events_ == 1) observer_.on_watching();
  std::optional<FilteredObject> parsed = reader_.read(line);
  if (!parsed) return true;
  const std::string type = text_at(parsed->json, "type");
  if (type == "ERROR") {
    const Json& status = member(parsed->json, "object");
    const Json& code = member(status, "code");
    return fail(to_api_error(code.is_number_integer() ? code.get<int>() : 0, text_at(status, "reason"),
                             text_at(status, "message")));
  }
  if (!member(parsed->json, "object").is_object()) {
    reader_.report_skipped("a line of the watch was ignored: it has no object");
    return true;
  }
  FilteredObject object{std::move(parsed->json["object"]), std::move(parsed->error)};
  const std::string version = version_of(object.json);
  return initial_ ? initial_event(type, std::move(object), version) : live_event(type, std::move(object), version);
}

void WatchSink::skip_unknown_type(const std::string& type) {
  reader_.report_skipped(
      fmt::format("an event of the watch was ignored: its type '{}' is unknown", type.substr(0, 40)));
}

// The versions of initial events are not ordered, and a watch cannot resume from any of them.
bool WatchSink::initial_event(const std::string& type, FilteredObject object, const std::string& version) {
  if (type == "BOOKMARK") {
    if (!ends_initial_events(object.json)) {
      ignored_initial_ = true;
      return fail(decode_error("the server does not mark the end of the initial events"));
    }
    if (version.empty()) return fail(decode_error("the bookmark after the initial events has no resourceVersion"));
    target_.commit_replace(version);
    last_version_ = version;
    initial_ = false;
    observer_.on_synced();
    return true;
  }
  const auto change = change_of(type);
  if (!change) {
    skip_unknown_type(type);
  } else if (*change == ChangeType::kDeleted) {
    target_.replace_deleted(std::move(object));
  } else {
    target_.replace_object(std::move(object));
  }
  return check_limit();
}

bool WatchSink::check_limit() {
  const std::optional<std::string> excess = target_.exceeded_limit();
  return !excess || fail(decode_error(*excess));
}

bool WatchSink::live_event(const std::string& type, FilteredObject object, const std::string& version) {
  // Versions of a watch only increase. If they do not, etcd was restored from a backup or another server responds; the
  // known objects may have states that no longer exist, so everything is relisted.
  if (!version.empty() && compare_resource_versions(version, last_version_) < 0) {
    ApiError error = decode_error(
        fmt::format("the watch went back from resourceVersion {} to {}: relisting", last_version_, version));
    error.kind = ApiErrorKind::kExpired;
    return fail(std::move(error));
  }
  if (type == "BOOKMARK") {
    target_.bookmark(version);
  } else if (const auto change = change_of(type)) {
    target_.change(*change, std::move(object), version);
    if (!check_limit()) return false;
  } else {
    skip_unknown_type(type);
  }
  if (!version.empty()) last_version_ = version;
  return true;
}

}  // namespace oarlock::kube
