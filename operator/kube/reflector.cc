#include "operator/kube/reflector.h"

#include <fmt/format.h>

#include <algorithm>

#include "operator/kube/json_access.h"
#include "operator/kube/reflector_sinks.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;

constexpr auto kShortWatch = std::chrono::seconds(1);
constexpr auto kWatchMargin = std::chrono::seconds(30);
constexpr auto kLongestRetryAfter = std::chrono::seconds(60);

}  // namespace

Reflector::Reflector(ReflectorOptions options, std::shared_ptr<Transport> transport, ReflectorTarget& target,
                     ReflectorObserver& observer, std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper,
                     Random random)
    : options_(std::move(options)),
      object_filters_{options_.fields.with({"metadata.resourceVersion"}), options_.salvage},
      event_filters_(event_filters(object_filters_)),
      envelope_filter_({"metadata.resourceVersion", "metadata.continue"}),
      transport_(std::move(transport)),
      target_(target),
      observer_(observer),
      clock_(std::move(clock)),
      sleeper_(std::move(sleeper)),
      random_(std::move(random)),
      backoff_({}, clock_, random_),
      use_watch_list_(options_.watch_list) {}

void Reflector::run(const std::stop_token& stop) {
  Next next = fill(stop);
  while (!stop.stop_requested()) {
    if (next != Next::kWatch) {
      Milliseconds pause = backoff_.next();
      if (retry_after_) pause = std::max<Milliseconds>(pause, *retry_after_);
      retry_after_.reset();
      if (!sleeper_->sleep(pause, stop)) return;
    }
    next = next == Next::kListLater ? fill(stop) : watch(stop);
  }
}

Reflector::Next Reflector::failed(const ApiError& error, Next next) {
  if (error.kind == ApiError::Kind::kTransport && error.transport == TransportError::Kind::kCancelled) return next;
  if (error.kind == ApiError::Kind::kExpired) {
    last_version_.clear();  // nothing that is known to exist any more: take the newest
    next = Next::kListLater;
  }
  retry_after_ = error.retry_after;
  if (retry_after_) retry_after_ = std::min(*retry_after_, kLongestRetryAfter);
  observer_.on_problem(error);
  return next;
}

ApiResult<std::string> Reflector::list_page(const ListOptions& options, std::string& resource_version,
                                            const std::stop_token& stop) {
  ListSink sink(object_filters_, target_, observer_);
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

Reflector::Next Reflector::fill(const std::stop_token& stop) { return use_watch_list_ ? watch_list(stop) : list(stop); }

std::chrono::seconds Reflector::watch_timeout() const {
  return options_.watch_timeout +
         std::chrono::seconds(static_cast<int64_t>(static_cast<double>(options_.watch_timeout.count()) * random_()));
}

Reflector::Next Reflector::watch_list(const std::stop_token& stop) {
  const auto timeout = watch_timeout();
  const Request request =
      watch_request(options_.resource, options_.selection,
                    {.resource_version = last_version_, .timeout = timeout, .send_initial_events = true});
  target_.begin_replace();
  WatchSink sink(event_filters_, target_, observer_, last_version_, true);
  const SteadyTime started = clock_->steady();
  const auto response = transport_->stream(request, sink, {options_.idle, timeout + kWatchMargin}, stop);
  if (sink.committed()) return after_watch(sink, response, clock_->steady() - started);

  target_.abandon_replace();
  if (response && !response->ok()) {
    const ApiError error = api_error(*response);
    // As client-go: a server without the feature calls the request invalid.
    if (error.kind == ApiError::Kind::kInvalid) return without_watch_list(stop);
    return failed(error, Next::kListLater);
  }
  if (sink.ignored_initial()) return without_watch_list(stop);
  if (sink.problem()) return failed(*sink.problem(), Next::kListLater);
  if (!response) return failed(api_error(response.error()), Next::kListLater);
  return failed(unreadable("the watch ended before its initial events did"), Next::kListLater);
}

Reflector::Next Reflector::without_watch_list(const std::stop_token& stop) {
  use_watch_list_ = false;
  return list(stop);
}

Reflector::Next Reflector::watch(const std::stop_token& stop) {
  const auto timeout = watch_timeout();
  const Request request =
      watch_request(options_.resource, options_.selection, {.resource_version = last_version_, .timeout = timeout});
  WatchSink sink(event_filters_, target_, observer_, last_version_, false);
  const SteadyTime started = clock_->steady();
  const auto response = transport_->stream(request, sink, {options_.idle, timeout + kWatchMargin}, stop);
  return after_watch(sink, response, clock_->steady() - started);
}

Reflector::Next Reflector::after_watch(const WatchSink& sink, const TransportResult<Response>& response,
                                       std::chrono::nanoseconds took) {
  if (sink.problem()) return failed(*sink.problem(), Next::kListLater);
  const bool lived = sink.events() > 0 || took >= kShortWatch;
  if (!response) {
    const ApiError error = api_error(response.error());
    if (response.error().kind == TransportError::Kind::kConnect || !lived) return failed(error, Next::kWatchLater);
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
