// The responses of an MLflow server to the requests of a whole run. Each line of the input is one: its status, a space,
// and its body; after the last one, the connection breaks. Whatever they are, a delivery ends after a bounded number of
// requests, and what the server sent neither breaks a request nor puts control characters into a message.
#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>

#include "common/number.h"
#include "http/client/transport.h"
#include "tests/fuzz/input.h"
#include "trainer/tracking/sink.h"

using namespace oarlock;

namespace {

constexpr size_t kMaxRequests = 1000;  // of one delivery

// The responses that are left, and the requests since the last delivery began.
struct Server {
  std::string_view responses;
  size_t requests = 0;
};

Server& server() {
  static Server one;
  return one;
}

void require_valid(const http::Request& request) {
  fuzz::require(request.method == "GET" || request.method == "POST" || request.method == "PUT");
  fuzz::require(request.target.starts_with("/api/2.0/mlflow"));
  fuzz::require(std::ranges::all_of(request.target, [](char c) { return c > ' ' && c < '\x7f'; }));
  if (request.content_type == "application/json") fuzz::require(nlohmann::json::accept(request.body));
}

class ScriptedTransport final : public http::Transport {
 public:
  http::TransportResult<http::Response> send(const http::Request& request, http::Milliseconds,
                                             std::stop_token) override {
    require_valid(request);
    fuzz::require(++server().requests <= kMaxRequests);
    std::string_view& rest = server().responses;
    if (rest.empty())
      return http::failed(http::TransportErrorKind::kBroken, "http://mlflow: connection closed by peer");
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    const size_t space = std::min(line.find(' '), line.size());
    const int status = parse_integer<int>(line.substr(0, space)).value_or(200);
    return http::Response{.status = std::clamp(status, 200, 599),
                          .body = std::string(line.substr(std::min(space + 1, line.size()))),
                          .retry_after = std::nullopt};
  }

  http::TransportResult<http::Response> stream(const http::Request&, http::ByteSink&, http::StreamLimits,
                                               std::stop_token) override {
    return http::failed(http::TransportErrorKind::kRefused, "http://mlflow: no stream is expected");
  }
};

RunStarted started() {
  RunStarted run;
  run.name = "run";
  run.task = "task";
  run.job = "job";
  run.job_namespace = "default";
  run.uid = "uid";
  run.config = {{"seed", 1}, {"optimizer", {{"lr", 0.1}}}};
  run.derived = {{"ddp/world_size", 2}};
  run.versions = {{"revision", "0123abcd"}};
  return run;
}

RunFinished finished() {
  RunFinished run;
  run.success = true;
  run.reason = "Completed";
  run.summary = {{"loss", 0.25}};
  return run;
}

// Delivers an event, and repeats it once after a failure, as the tracker does.
void deliver(Sink& sink, int64_t step, decltype(Event::content) content) {
  Event event;
  event.time = SystemTime(std::chrono::seconds(1'700'000'000 + step));
  event.step = step;
  event.content = std::move(content);
  for (int attempt = 0; attempt < 2; ++attempt) {
    server().requests = 0;
    const Result<size_t> count = sink.write({&event, 1});
    if (count) return fuzz::require(*count == 1);
    const auto& [code, message] = count.error();
    fuzz::require(code != ExitCode::kDataErr);
    fuzz::require(!message.empty() && message.size() < 10'000 && is_printable(message));
  }
}

}  // namespace

// Takes the place of the implementation that connects to the server (http/client/transport.h).
Result<std::unique_ptr<http::Transport>> oarlock::http::create_transport(TransportOptions) {
  return std::make_unique<ScriptedTransport>();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const RealClock clock;
  server() = {.responses = fuzz::text_of(data, size)};
  MlflowConfig config;
  config.uri = "http://mlflow";
  const auto variables = [](std::string_view) -> std::optional<std::string> { return std::nullopt; };
  const Result<std::unique_ptr<Sink>> sink = make_mlflow_sink(
      config, variables, {.directory = {}, .logger = Logger::silent(), .clock = clock, .run = started()});
  fuzz::require(sink.has_value());
  deliver(**sink, 0, started());
  deliver(**sink, 1, Scalars{.values = {{"loss", 0.5}, {"eval/top 1", 1}}});
  deliver(**sink, 2, Text{.name = "samples", .text = "text"});
  deliver(**sink, 3, finished());
  return 0;
}
