// Drives one sink of trainer/tracking for tests: `sink_driver wandb|mlflow DIRECTORY` reads events from standard input,
// one JSON object per line, and delivers them. {"flush": true} delivers the events before it in one call of write().
// The configuration is the environment; SINK_RUN is the run of the process, as in {"started": ...}. A failed delivery
// prints "failed: MESSAGE" and is repeated until it succeeds, except that of a local sink, which the tracker does not
// repeat either; a delivery prints "delivered COUNT". Ends with 0 at the end of the input.
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "trainer/tracking/sink.h"

namespace oarlock {
namespace {

using nlohmann::json;

std::optional<std::string> variable(std::string_view name) {
  const char* value = std::getenv(std::string(name).c_str());
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

double number(const json& value) {
  if (value.is_number()) return value.get<double>();
  return value == "NaN" ? std::nan("") : std::stod(value.get<std::string>());
}

RunStarted parse_run(const json& run) {
  RunStarted started;
  started.name = run.value("name", "run");
  started.task = run.value("task", "task");
  started.job = run.value("job", "");
  started.job_namespace = run.value("namespace", "");
  started.uid = run.value("uid", "");
  started.attempt = run.value("attempt", 0);
  started.restart_step = run.value("restart_step", int64_t{0});
  started.config = run.value("config", json::object());
  started.derived = run.value("derived", std::map<std::string, double>());
  started.versions = run.value("versions", std::map<std::string, std::string>());
  return started;
}

Event parse(const json& line) {
  Event event;
  event.time = SystemTime(
      std::chrono::duration_cast<SystemTime::duration>(std::chrono::duration<double>(line.value("time", 1.7e9))));
  event.step = line.value("step", int64_t{0});
  if (const auto run = line.find("started"); run != line.end()) {
    event.content = parse_run(*run);
  } else if (const auto values = line.find("scalars"); values != line.end()) {
    Scalars scalars;
    for (const auto& [name, value] : values->items()) scalars.values.emplace_back(name, number(value));
    event.content = std::move(scalars);
  } else if (const auto h = line.find("histogram"); h != line.end()) {
    event.content = Histogram{.name = h->at("name"),
                              .min = h->at("min"),
                              .max = h->at("max"),
                              .limits = h->at("limits"),
                              .counts = h->at("counts")};
  } else if (const auto text = line.find("text"); text != line.end()) {
    event.content = Text{text->at("name"), text->at("text")};
  } else if (const auto image = line.find("image"); image != line.end()) {
    std::ifstream file(image->at("file").get<std::string>(), std::ios::binary);
    event.content = Image{image->at("name"), image->at("width"), image->at("height"),
                          std::string(std::istreambuf_iterator<char>(file), {})};
  } else {
    const json& end = line.at("finished");
    event.content = RunFinished{.success = end.value("success", true),
                                .resumes = end.value("resumes", false),
                                .reason = end.value("reason", "Completed"),
                                .message = end.value("message", ""),
                                .summary = end.value("summary", std::map<std::string, double>()),
                                .time_table = end.value("time_table", "")};
  }
  return event;
}

Result<std::unique_ptr<Sink>> make_sink(const std::string& name, const SinkContext& context) {
  if (name == "wandb") {
    WandbConfig config;
    config.enabled = true;
    return resolve_wandb_settings(config, variable).map([&](const WandbSettings& settings) {
      return make_wandb_sink(settings, context);
    });
  }
  if (name == "mlflow") {
    MlflowConfig config;
    config.enabled = true;
    config.token_file = variable("SINK_TOKEN_FILE").value_or("");
    config.timeout_seconds = std::stod(variable("SINK_TIMEOUT").value_or("30"));
    return make_mlflow_sink(config, variable, context);
  }
  return fail(ExitCode::kUsage, "unknown sink: " + name);
}

void deliver(Sink& sink, std::vector<Event>& events) {
  std::span<const Event> left = events;
  while (!left.empty()) {
    const Result<size_t> delivered = sink.write(left);
    if (delivered) {
      std::cout << "delivered " << *delivered << std::endl;
      left = left.subspan(*delivered);
      continue;
    }
    std::cout << "failed: " << delivered.error().message << std::endl;
    if (!sink.is_remote()) break;
    if (delivered.error().code == ExitCode::kDataErr) {
      left = left.subspan(1);
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  events.clear();
}

int run(const std::string& name, const std::string& directory) {
  const RealClock clock;
  const SinkContext context{.directory = directory,
                            .logger = Logger(LogFormat::kText, LogLevel::kInfo),
                            .clock = clock,
                            .run = parse_run(json::parse(variable("SINK_RUN").value_or("{}")))};
  const Result<std::unique_ptr<Sink>> sink = make_sink(name, context);
  if (!sink) {
    std::cerr << sink.error().message << "\n";
    return to_int(sink.error().code);
  }
  std::vector<Event> events;
  for (std::string line; std::getline(std::cin, line);) {
    const json value = json::parse(line);
    if (value.contains("flush")) {
      deliver(**sink, events);
    } else {
      events.push_back(parse(value));
    }
  }
  deliver(**sink, events);
  return 0;
}

}  // namespace
}  // namespace oarlock

int main(int argc, char** argv) {
  if (argc != 3) {
    std::cerr << "usage: sink_driver wandb|mlflow DIRECTORY\n";
    return 64;
  }
  return oarlock::run(argv[1], argv[2]);
}
