#include "operator/kube/reflector.h"

#include <fmt/format.h>

#include "operator/kube/json_access.h"
#include "operator/kube/splitter.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;

constexpr size_t kMaxObjectBytes = 8u << 20;  // etcd takes 1.5 MiB; JSON may be some times longer
constexpr auto kShortWatch = std::chrono::seconds(1);
constexpr auto kWatchMargin = std::chrono::seconds(30);

std::string version_of(const Json& object) { return text_at(member(object, "metadata"), "resourceVersion"); }

ApiError unreadable(const std::string& what) {
  ApiError error;
  error.message = what;
  return error;
}

class ListSink final : public ByteSink {
 public:
  ListSink(const FieldFilter& filter, ReflectorTarget& target)
      : filter_(filter), target_(target), splitter_(kMaxObjectBytes) {}

  bool write(std::string_view bytes) override {
    const bool good = splitter_.feed(bytes, [this](std::string_view item) {
      Result<Json> object = filter_.parse(item);
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
  const std::string& problem() const { return problem_; }
  const ItemSplitter& splitter() const { return splitter_; }

 private:
  const FieldFilter& filter_;
  ReflectorTarget& target_;
  ItemSplitter splitter_;
  std::string problem_;
};

class WatchSink final : public ByteSink {
 public:
  WatchSink(const FieldFilter& filter, ReflectorTarget& target, std::string& last_version)
      : filter_(filter), target_(target), last_version_(last_version), splitter_(kMaxObjectBytes) {}

  bool write(std::string_view bytes) override {
    const bool good = splitter_.feed(bytes, [this](std::string_view line) { return event(line); });
    if (splitter_.too_long())
      problem_ = unreadable(fmt::format("a line of the watch is longer than {} bytes", kMaxObjectBytes));
    return good;
  }
  const std::optional<ApiError>& problem() const { return problem_; }
  int events() const { return events_; }

 private:
  bool event(std::string_view line) {
    Result<Json> parsed = filter_.parse(line);
    if (!parsed) {
      problem_ = unreadable("a line of the watch is not JSON: " + parsed.error().message);
      return false;
    }
    const std::string type = text_at(*parsed, "type");
    if (type == "ERROR") {
      const Json& status = member(*parsed, "object");
      const Json& code = member(status, "code");
      problem_ = api_error(code.is_number_integer() ? code.get<int>() : 0, text_at(status, "reason"),
                           text_at(status, "message"));
      return false;
    }
    if (!member(*parsed, "object").is_object()) {
      problem_ = unreadable("a line of the watch has no object");
      return false;
    }
    ++events_;
    Json& object = (*parsed)["object"];
    const std::string version = version_of(object);
    if (type == "BOOKMARK") {
      target_.bookmark(version);
    } else if (type == "ADDED" || type == "MODIFIED" || type == "DELETED") {
      const ChangeType change = type == "ADDED"     ? ChangeType::kAdded
                                : type == "DELETED" ? ChangeType::kDeleted
                                                    : ChangeType::kModified;
      target_.change(change, std::move(object), version);
    } else {
      problem_ = unreadable(fmt::format("the watch has an event of the unknown type '{}'", type));
      return false;
    }
    if (!version.empty()) last_version_ = version;
    return true;
  }

  const FieldFilter& filter_;
  ReflectorTarget& target_;
  std::string& last_version_;
  LineSplitter splitter_;
  std::optional<ApiError> problem_;
  int events_ = 0;
};

}  // namespace

Reflector::Reflector(ReflectorOptions options, std::shared_ptr<Transport> transport, ReflectorTarget& target,
                     ReflectorObserver& observer, std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper,
                     Random random)
    : options_(std::move(options)),
      object_filter_(options_.fields.with({"metadata.resourceVersion"})),
      event_filter_(object_filter_.nested("object", {"type", "object.code", "object.reason", "object.message"})),
      envelope_filter_({"metadata.resourceVersion", "metadata.continue"}),
      transport_(std::move(transport)),
      target_(target),
      observer_(observer),
      clock_(std::move(clock)),
      sleeper_(std::move(sleeper)),
      random_(std::move(random)),
      backoff_({}, clock_, random_) {}

void Reflector::run(const std::stop_token& stop) {
  Next next = list(stop);
  while (!stop.stop_requested()) {
    if (next != Next::kWatch) {
      Milliseconds pause = backoff_.next();
      if (retry_after_) pause = std::max<Milliseconds>(pause, *retry_after_);
      retry_after_.reset();
      if (!sleeper_->sleep(pause, stop)) return;
    }
    next = next == Next::kListLater ? list(stop) : watch(stop);
  }
}

Reflector::Next Reflector::failed(const ApiError& error, Next next) {
  if (error.kind == ApiError::Kind::kTransport && error.transport == TransportError::Kind::kCancelled) return next;
  if (error.kind == ApiError::Kind::kExpired) {
    last_version_.clear();  // nothing that is known to exist any more: take the newest
    next = Next::kListLater;
  }
  retry_after_ = error.retry_after;
  observer_.on_problem(error);
  return next;
}

ApiResult<std::string> Reflector::list_page(const ListOptions& options, std::string& resource_version,
                                            const std::stop_token& stop) {
  ListSink sink(object_filter_, target_);
  const Request request = list_request(options_.resource, options_.selection, options);
  const auto response = transport_->stream(request, sink, {options_.idle, options_.list_limit}, stop);
  if (!sink.problem().empty()) return tl::make_unexpected(unreadable(sink.problem()));
  if (!response) return tl::make_unexpected(api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(api_error(*response));
  if (!sink.splitter().complete()) return tl::make_unexpected(unreadable("the list ended in the middle"));
  const Result<Json> envelope = envelope_filter_.parse(sink.splitter().envelope());
  if (!envelope) return tl::make_unexpected(unreadable("the list is not JSON: " + envelope.error().message));
  resource_version = version_of(*envelope);
  if (resource_version.empty()) return tl::make_unexpected(unreadable("the list has no resourceVersion"));
  return text_at(member(*envelope, "metadata"), "continue");
}

Reflector::Next Reflector::list(const std::stop_token& stop) {
  // A list at a resourceVersion comes from the server's cache, which gives no pages.
  ListOptions options{.resource_version = last_version_, .limit = 0, .continue_token = ""};
  if (last_version_.empty() && !pages_expired_) options.limit = options_.page_size;
  pages_expired_ = false;
  target_.begin_replace();
  std::string version;
  for (;;) {
    const ApiResult<std::string> more = list_page(options, version, stop);
    if (!more) {
      target_.abandon_replace();
      pages_expired_ = more.error().kind == ApiError::Kind::kExpired && !options.continue_token.empty();
      return failed(more.error(), Next::kListLater);
    }
    if (more->empty()) break;
    options.continue_token = *more;
  }
  target_.commit_replace(version);
  last_version_ = version;
  observer_.on_synced();
  return Next::kWatch;
}

Reflector::Next Reflector::watch(const std::stop_token& stop) {
  using Kind = TransportError::Kind;
  const auto timeout =
      options_.watch_timeout +
      std::chrono::seconds(static_cast<int64_t>(static_cast<double>(options_.watch_timeout.count()) * random_()));
  const Request request =
      watch_request(options_.resource, options_.selection, {.resource_version = last_version_, .timeout = timeout});
  WatchSink sink(event_filter_, target_, last_version_);
  const SteadyTime started = clock_->steady();
  const auto response = transport_->stream(request, sink, {options_.idle, timeout + kWatchMargin}, stop);
  if (sink.problem()) return failed(*sink.problem(), Next::kListLater);
  const bool lived = sink.events() > 0 || clock_->steady() - started >= kShortWatch;
  if (!response) {
    const ApiError error = api_error(response.error());
    if (response.error().kind == Kind::kConnect || !lived) return failed(error, Next::kWatchLater);
    // A broken or silent watch loses nothing: the next one goes on where it was.
    return Next::kWatch;
  }
  if (!response->ok()) {
    const ApiError error = api_error(*response);
    return failed(error, error.kind == ApiError::Kind::kTooManyRequests ? Next::kWatchLater : Next::kListLater);
  }
  if (lived) return Next::kWatch;
  return failed(unreadable("a watch ended at once without an event"), Next::kListLater);
}

}  // namespace oarlock::kube
