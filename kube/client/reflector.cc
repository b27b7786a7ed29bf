#include "kube/client/reflector.h"

#include <fmt/format.h>

#include <algorithm>

#include "common/json_access.h"
#include "kube/client/list_watch.h"

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;

constexpr auto kMinWatchDuration = std::chrono::seconds(1);
constexpr auto kWatchMargin = std::chrono::seconds(30);
constexpr auto kMaxRetryAfter = std::chrono::seconds(60);

}  // namespace

Reflector::Reflector(ReflectorOptions options, std::shared_ptr<http::Transport> transport, ReflectorTarget& target,
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
  Next next = relist(stop);
  while (!stop.stop_requested()) {
    const http::Milliseconds pause = pause_before(next);
    if (pause.count() > 0 && !sleeper_->sleep(pause, stop)) return;
    next = next == Next::kList || next == Next::kListLater ? relist(stop) : watch(stop);
  }
}

http::Milliseconds Reflector::pause_before(Next next) {
  if (next == Next::kList) return http::Milliseconds(0);
  if (next == Next::kWatch) return std::chrono::ceil<http::Milliseconds>(earliest_watch_ - clock_->steady());
  http::Milliseconds pause = backoff_.next();
  if (retry_after_) pause = std::max<http::Milliseconds>(pause, *retry_after_);
  retry_after_.reset();
  return pause;
}

Reflector::Next Reflector::failed(const ApiError& error, Next next) {
  if (error.kind == ApiErrorKind::kTransport && error.transport == http::TransportErrorKind::kCancelled) return next;
  is_checking_ = false;  // a later list also contains what has changed meanwhile
  if (error.kind == ApiErrorKind::kExpired) {
    last_version_.clear();  // the version is no longer available: use the most recent state
    next = Next::kListLater;
  }
  retry_after_ = error.retry_after;
  if (retry_after_) retry_after_ = std::min(*retry_after_, kMaxRetryAfter);
  ApiError shown = error;
  shown.message =
      transport_->mask_credentials(std::move(shown.message));  // an error within a watch is part of its body
  observer_.on_problem(shown);
  return next;
}

ApiResult<std::string> Reflector::list_page(const ListOptions& options, std::string& resource_version,
                                            ListProgress& progress, const std::stop_token& stop) {
  ListSink sink(object_filters_, target_, *this);
  const http::Request request = list_request(options_.resource, options_.selection, options);
  const auto response = transport_->stream(request, sink, {options_.idle, options_.list_timeout}, stop);
  if (!sink.problem().empty()) return tl::make_unexpected(decode_error(sink.problem()));
  if (!response) return tl::make_unexpected(to_api_error(response.error()));
  if (!response->ok()) return tl::make_unexpected(to_api_error(*response));
  if (!sink.splitter().complete()) return tl::make_unexpected(decode_error("the list is incomplete"));
  const Result<Json> envelope = envelope_filter_.parse(sink.splitter().envelope());
  if (!envelope) return tl::make_unexpected(decode_error("the list is not JSON: " + envelope.error().message));
  resource_version = version_of(*envelope);
  if (resource_version.empty()) return tl::make_unexpected(decode_error("the list has no resourceVersion"));
  std::string next_page = text_at(member(*envelope, "metadata"), "continue");
  if (next_page.empty()) return next_page;
  const std::string problem = progress.add_page(sink.items(), static_cast<size_t>(options_.page_size));
  if (!problem.empty()) return tl::make_unexpected(decode_error(problem));
  return next_page;
}

Reflector::Next Reflector::list(const std::stop_token& stop) {
  // The server serves a list at a resourceVersion from its cache, without pages.
  ListOptions options{.resource_version = last_version_, .limit = 0, .continue_token = ""};
  if (last_version_.empty() && !pages_expired_) options.limit = options_.page_size;
  pages_expired_ = false;
  target_.begin_replace();
  std::string version;
  ListProgress progress(options_.max_objects);
  for (;;) {
    const ApiResult<std::string> next_page = list_page(options, version, progress, stop);
    if (!next_page) {
      target_.abandon_replace();
      pages_expired_ = next_page.error().kind == ApiErrorKind::kExpired && !options.continue_token.empty();
      return failed(next_page.error(), Next::kListLater);
    }
    if (next_page->empty()) break;
    options.continue_token = *next_page;
  }
  target_.commit_replace(version);
  last_version_ = version;
  on_synced();
  return Next::kWatch;
}

void Reflector::on_synced() {
  silent_since_ = clock_->steady();
  if (!std::exchange(is_checking_, false)) return observer_.on_synced();
  if (!target_.has_changed()) return observer_.on_watching();
  observer_.on_problem(
      decode_error(fmt::format("no event arrived for {} s although objects have changed: the watches do not work; is "
                               "there a proxy that buffers responses or resets connections?",
                               options_.max_silence.count() / 1000)));
}

Reflector::Next Reflector::relist(const std::stop_token& stop) {
  return use_watch_list_ ? watch_list(stop) : list(stop);
}

std::chrono::seconds Reflector::watch_timeout() const {
  return options_.watch_timeout +
         std::chrono::seconds(static_cast<int64_t>(static_cast<double>(options_.watch_timeout.count()) * random_()));
}

SteadyTime Reflector::begin_watch() {
  const SteadyTime now = clock_->steady();
  earliest_watch_ = now + kMinWatchDuration;
  return now;
}

Reflector::Next Reflector::watch_list(const std::stop_token& stop) {
  const auto timeout = watch_timeout();
  const http::Request request =
      watch_request(options_.resource, options_.selection,
                    {.resource_version = last_version_, .timeout = timeout, .send_initial_events = true});
  target_.begin_replace();
  WatchSink sink(event_filters_, target_, *this, last_version_, true);
  const SteadyTime started = begin_watch();
  const auto response = transport_->stream(request, sink, {options_.idle, timeout + kWatchMargin}, stop);
  if (sink.committed()) return after_watch(sink, response, clock_->steady() - started);

  target_.abandon_replace();
  if (response && !response->ok()) {
    const ApiError error = to_api_error(*response);
    // As in client-go: a server without the feature rejects the request as invalid.
    if (error.kind == ApiErrorKind::kInvalid) return disable_watch_list(stop);
    return failed(error, Next::kListLater);
  }
  if (sink.ignored_initial()) return disable_watch_list(stop);
  if (sink.problem()) return failed(*sink.problem(), Next::kListLater);
  if (!response) return failed(to_api_error(response.error()), Next::kListLater);
  return failed(decode_error("the watch ended before its initial events did"), Next::kListLater);
}

Reflector::Next Reflector::disable_watch_list(const std::stop_token& stop) {
  use_watch_list_ = false;
  return list(stop);
}

Reflector::Next Reflector::watch(const std::stop_token& stop) {
  const auto timeout = watch_timeout();
  const http::Request request =
      watch_request(options_.resource, options_.selection, {.resource_version = last_version_, .timeout = timeout});
  WatchSink sink(event_filters_, target_, *this, last_version_, false);
  const SteadyTime started = begin_watch();
  const auto response = transport_->stream(request, sink, {options_.idle, timeout + kWatchMargin}, stop);
  return after_watch(sink, response, clock_->steady() - started);
}

Reflector::Next Reflector::after_watch(const WatchSink& sink, const http::TransportResult<http::Response>& response,
                                       std::chrono::nanoseconds took) {
  if (sink.live_events() > 0) silent_since_ = clock_->steady();
  if (sink.problem()) return failed(*sink.problem(), Next::kListLater);
  const bool was_useful = sink.events() > 0 || took >= kMinWatchDuration;
  if (!response) {
    const ApiError error = to_api_error(response.error());
    if (response.error().kind == http::TransportErrorKind::kConnect || !was_useful)
      return failed(error, Next::kWatchLater);
    // A broken or idle watch loses no events: the next one resumes at last_version_.
    return resume_or_check();
  }
  if (!response->ok()) {
    const ApiError error = to_api_error(*response);
    return failed(error, error.kind == ApiErrorKind::kTooManyRequests ? Next::kWatchLater : Next::kListLater);
  }
  if (was_useful) return resume_or_check();
  return failed(decode_error("a watch ended immediately without an event"), Next::kListLater);
}

Reflector::Next Reflector::resume_or_check() {
  if (clock_->steady() - silent_since_ >= options_.max_silence) {
    is_checking_ = true;
    last_version_.clear();  // the cache of a server that delivers nothing may be old: use the most recent state
    return Next::kList;     // a change during a pause without a watch would look like one that the watches missed
  }
  return target_.needs_relist() ? Next::kListLater : Next::kWatch;
}

}  // namespace oarlock::kube
