// Early stopping compared with the original's decisions, its state in a checkpoint, and its errors.
#include "trainer/engine/early_stopping.h"
#include "tests/support/paths.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "common/files.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const Monitor kLoss = {"loss", MetricMode::kMin};

double number(const Json& value) {
  return value.is_string() ? std::stod(value.get<std::string>()) : value.get<double>();
}

struct Case {
  EarlyStoppingConfig config;
  Json golden;

  Metrics metrics(size_t step) const {
    Metrics out;
    for (const Json& metric : golden["metrics"]) out[metric["name"]] = number(metric["values"][step]);
    return out;
  }
};

std::vector<Case> golden_cases() {
  const Json file = Json::parse(read_file(test::data_path("early_stopping_goldens.json")).value());
  std::vector<Case> out;
  for (const Json& golden : file["cases"]) {
    Case one;
    one.golden = golden;
    one.config.patience = golden["patience"].get<int64_t>();
    one.config.aggregate = golden["aggregate"] == "all" ? Aggregate::kAll : Aggregate::kAny;
    one.config.metrics.clear();
    for (const Json& metric : golden["metrics"]) {
      WatchedMetric watched;
      watched.name = metric["name"];
      watched.mode = metric["mode"] == "min" ? MetricMode::kMin : MetricMode::kMax;
      watched.min_delta = metric["min_delta"];
      watched.grace_period = metric["grace_period"];
      if (metric.contains("init_best_score")) watched.init_best_score = metric["init_best_score"].get<double>();
      one.config.metrics.push_back(watched);
    }
    out.push_back(std::move(one));
  }
  return out;
}

void expect_step(const EarlyStopping& stopping, const Json& step) {
  EXPECT_EQ(stopping.stopped(), step[0].get<bool>());
  EXPECT_EQ(stopping.has_improved(), step[1].get<bool>());
  EXPECT_EQ(stopping.patience_left(), step[2].get<int64_t>());
  for (size_t i = 0; i < stopping.watched().size(); ++i) {
    EXPECT_EQ(stopping.watched()[i].best, number(step[3][i]));
    EXPECT_EQ(stopping.watched()[i].grace_left, step[4][i].get<int64_t>());
  }
}

void reset_before(EarlyStopping& stopping, const Json& golden, size_t step) {
  const auto which = golden["resets"].find(std::to_string(step));
  if (which == golden["resets"].end()) return;
  if (which->get<int>() < 0) {
    stopping.reset();
  } else {
    stopping.reset(which->get<size_t>());
  }
}

// At every step the object is also saved and restored into a new one, which must decide the same.
TEST(EarlyStopping, MatchesQuantumGrav) {
  const std::vector<Case> cases = golden_cases();
  ASSERT_EQ(cases.size(), 60U);
  for (size_t i = 0; i < cases.size(); ++i) {
    const Json& golden = cases[i].golden;
    EarlyStopping stopping(cases[i].config, kLoss);
    for (size_t step = 0; step < golden["steps"].size(); ++step) {
      SCOPED_TRACE("case " + std::to_string(i) + " step " + std::to_string(step));
      EarlyStopping resumed(cases[i].config, kLoss);
      ASSERT_TRUE(resumed.restored(Json::parse(stopping.values().dump())));
      for (EarlyStopping* one : {&stopping, &resumed}) {
        reset_before(*one, golden, step);
        const Result<bool> stop = one->observe(cases[i].metrics(step));
        ASSERT_TRUE(stop) << stop.error().message;
        EXPECT_EQ(*stop, one->stopped());
        expect_step(*one, golden["steps"][step]);
      }
      if (HasFailure()) return;
    }
  }
}

EarlyStoppingConfig patience(int64_t evaluations) {
  EarlyStoppingConfig config;
  config.patience = evaluations;
  return config;
}

// The evaluation, from 1, at which it stops; 0: never.
int stop_at(EarlyStopping stopping, const std::vector<double>& losses) {
  for (size_t i = 0; i < losses.size(); ++i) {
    if (*stopping.observe({{"loss", losses[i]}})) return static_cast<int>(i) + 1;
  }
  return 0;
}

TEST(EarlyStopping, StopsAfterPatience) {
  EXPECT_EQ(stop_at({patience(2), kLoss}, {3, 2, 2, 1.9, 2, 2, 1}), 6);
  EXPECT_EQ(stop_at({patience(2), {"loss", MetricMode::kMax}}, {3, 2, 3, 4}), 3);
  EXPECT_EQ(stop_at({{}, kLoss}, {1, 2, 3, 4, 5, 6, 7}), 0);  // without a patience never
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(stop_at({patience(2), kLoss}, {kNan, kNan, 1}), 2);  // NaN does not improve
  EXPECT_EQ(stop_at({patience(2), kLoss}, {1, kNan, 0.5, kNan, kNan}), 5);
}

TEST(EarlyStopping, ReportsReason) {
  EarlyStopping stopping(patience(1), kLoss);
  ASSERT_FALSE(*stopping.observe({{"loss", 0.25}}));
  ASSERT_TRUE(*stopping.observe({{"loss", 0.5}}));
  EXPECT_EQ(stopping.reason(), "no improvement of loss (best 0.25) for 1 evaluations");
}

TEST(EarlyStopping, ResumesOnlyWithMorePatience) {
  EarlyStopping stopping(patience(2), kLoss);
  for (const double loss : {1.0, 2.0, 2.0}) ASSERT_TRUE(stopping.observe({{"loss", loss}}));
  ASSERT_TRUE(stopping.stopped());
  EarlyStopping same(patience(2), kLoss);
  ASSERT_TRUE(same.restored(stopping.values()));
  EXPECT_TRUE(same.stopped());
  EarlyStopping more(patience(5), kLoss);
  ASSERT_TRUE(more.restored(stopping.values()));
  EXPECT_FALSE(more.stopped());
  EXPECT_EQ(more.patience_left(), 3);
  EarlyStopping off({}, kLoss);
  ASSERT_TRUE(off.restored(stopping.values()));
  EXPECT_FALSE(off.stopped());
}

TEST(EarlyStopping, NamesKnownMetricsForUnknownOne) {
  EarlyStoppingConfig config = patience(2);
  config.metrics[0].name = "acuracy";
  EarlyStopping stopping(config, kLoss);
  const Result<bool> stop = stopping.observe({{"loss", 1}, {"accuracy", 0.5}});
  ASSERT_FALSE(stop);
  EXPECT_EQ(stop.error().code, ExitCode::kConfig);
  EXPECT_THAT(stop.error().message, HasSubstr("no metric 'acuracy', only accuracy, loss; did you mean 'accuracy'?"));
}

TEST(EarlyStopping, RejectsOtherMetricsAndUnknownState) {
  EarlyStopping loss(patience(2), kLoss);
  EarlyStopping accuracy(patience(2), {"accuracy", MetricMode::kMax});
  const Result<void> other = accuracy.restored(loss.values());
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ExitCode::kConfig);
  for (const char* text : {"{}", R"({"metrics": [{"name": "loss"}]})", R"({"metrics": {"loss": 1}})", "[]"})
    EXPECT_THROW(static_cast<void>(loss.restored(Json::parse(text))), Json::exception) << text;
}

}  // namespace
}  // namespace oarlock
