// Events of a run, and helpers for tests of the sinks that receive them.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "trainer/tracking/event.h"

namespace oarlock::test {

inline Event scalar_at(int64_t step, double value = 0.5, const std::string& name = "loss") {
  return {.time = SystemTime(std::chrono::seconds(1700000000)), .step = step, .content = Scalars{{{name, value}}}};
}

inline Event started(int64_t restart_step) {
  RunStarted run;
  run.name = "run";
  run.restart_step = restart_step;
  run.config = {{"optimizer", {{"lr", 0.1}}}, {"epochs", nullptr}};
  run.derived = {{"ddp/world_size", 2}};
  return {.time = SystemTime(std::chrono::seconds(1700000000)), .step = restart_step, .content = run};
}

inline std::vector<int64_t> steps_of(const std::vector<Event>& events) {
  std::vector<int64_t> out;
  for (const Event& event : events) out.push_back(event.step);
  return out;
}

// Returns how often a text, such as a log, contains another one.
inline size_t count_of(const std::string& text, const std::string& part) {
  size_t out = 0;
  for (size_t place = text.find(part); place != std::string::npos; place = text.find(part, place + 1)) ++out;
  return out;
}

}  // namespace oarlock::test
