// The history of a run as JSON columns and as charts.
#include "trainer/report/run_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <regex>

#include "trainer/report/svg_chart.h"

namespace oarlock {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

History two_epochs() {
  return {{.epoch = 1,
           .step = 10,
           .train_loss = 2.5,
           .learning_rate = 0.1,
           .seconds = 3,
           .metrics = {{"accuracy", 0.25}, {"loss", 2}}},
          {.epoch = 2,
           .step = 20,
           .train_loss = 1.5,
           .learning_rate = 0.05,
           .seconds = 6.5,
           .metrics = {{"accuracy", 0.5}, {"loss", 1.75}}}};
}

TEST(History, WritesOneListPerColumn) {
  EXPECT_EQ(to_columns(two_epochs()), nlohmann::json::parse(R"({"epoch": [1, 2], "step": [10, 20],
    "train_loss": [2.5, 1.5], "learning_rate": [0.1, 0.05], "seconds": [3, 6.5], "val_accuracy": [0.25, 0.5],
    "val_loss": [2, 1.75]})"));
  EXPECT_EQ(to_columns({})["step"], nlohmann::json::array());
}

TEST(History, WritesNullForMissingAndNonFiniteNumbers) {
  History history = two_epochs();
  history[0].train_loss = kNan;
  history[1].metrics = {{"loss", std::numeric_limits<double>::infinity()}};
  const nlohmann::json columns = to_columns(history);
  EXPECT_THAT(columns["train_loss"], ElementsAre(nullptr, 1.5));
  EXPECT_THAT(columns["val_loss"], ElementsAre(2, nullptr));
  EXPECT_THAT(columns["val_accuracy"], ElementsAre(0.25, nullptr));
  const Result<History> again = from_columns(nlohmann::json::parse(columns.dump()));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_TRUE(std::isnan((*again)[0].train_loss));
  EXPECT_EQ(to_columns(*again), columns);
}

TEST(History, RejectsDamagedColumns) {
  nlohmann::json columns = to_columns(two_epochs());
  columns["val_loss"].erase(0);
  EXPECT_THAT(from_columns(columns).error().message, HasSubstr("'val_loss' has 1 entries, 'step' has 2"));
  columns = to_columns(two_epochs());
  columns["epoch"][1] = "two";
  EXPECT_EQ(from_columns(columns).error().code, ExitCode::kDataErr);
  EXPECT_FALSE(from_columns(nlohmann::json::object()));
}

// A resumed run evaluates again what came after its checkpoint.
TEST(History, ReplacesEntriesAfterResume) {
  History history = two_epochs();
  add_entry(history, {.epoch = 2, .step = 20, .train_loss = 9});
  ASSERT_EQ(history.size(), 2U);
  EXPECT_EQ(history[1].train_loss, 9);
  add_entry(history, {.epoch = 1.5, .step = 15});
  add_entry(history, {.epoch = 3, .step = 30});
  EXPECT_THAT(to_columns(history)["step"], ElementsAre(10, 15, 30));
}

TEST(Ticks, AreRoundNumbers) {
  EXPECT_THAT(round_ticks(0, 10, 5), ElementsAre(0, 2, 4, 6, 8, 10));
  EXPECT_THAT(round_ticks(0.13, 0.94, 4), ElementsAre(testing::DoubleEq(0.5)));
  EXPECT_THAT(round_ticks(-3, 12, 3), ElementsAre(0, 5, 10));
  EXPECT_THAT(round_ticks(1e6, 3e6, 2), ElementsAre(1e6, 2e6, 3e6));
  EXPECT_THAT(round_ticks(2, 2, 5), ElementsAre(2, 2));
  for (const double low : {-1e-7, 0.0, 3.3, 12345.6}) {
    for (const double width : {1e-6, 0.7, 19.0, 5e5}) {
      const auto ticks = round_ticks(low, low + width, 5);
      const double slack = 1e-9 * width + 1e-12 * std::abs(low);
      EXPECT_THAT(ticks, testing::SizeIs(testing::AllOf(testing::Ge(1), testing::Le(6)))) << low << " " << width;
      for (const double tick : ticks) EXPECT_TRUE(tick >= low - slack && tick <= low + width + slack);
    }
  }
}

// Enough of XML to see that elements are closed in order and that text holds no markup. Gives the names of the
// elements; empty: it is not well-formed.
std::vector<std::string> elements_of(const std::string& xml) {
  static const std::regex kTag(R"re(<(/?)([a-z?]+)((?:\s+[A-Za-z0-9-]+="[^"<]*")*)\s*([/?]?)>)re");
  std::vector<std::string> open;
  std::vector<std::string> names;
  auto at = xml.cbegin();
  for (std::smatch tag; std::regex_search(at, xml.cend(), tag, kTag); at = tag.suffix().first) {
    const std::string text = tag.prefix();
    if (text.find_first_of("<>") != std::string::npos) return {};
    if (std::regex_search(text, std::regex("&(?!amp;|lt;|gt;)"))) return {};
    if (tag[1] == "/") {
      if (open.empty() || open.back() != tag[2]) return {};
      open.pop_back();
    } else {
      names.push_back(tag[2]);
      if (tag[4].length() == 0) open.push_back(tag[2]);
    }
  }
  return open.empty() ? names : std::vector<std::string>{};
}

int64_t count_of(const std::vector<std::string>& names, const std::string& name) {
  return std::count(names.begin(), names.end(), name);
}

TEST(Curves, RenderOneChartPerMetric) {
  const std::string svg = render_curves(two_epochs());
  const auto elements = elements_of(svg);
  ASSERT_FALSE(elements.empty()) << svg;
  EXPECT_EQ(elements[1], "svg");
  EXPECT_EQ(count_of(elements, "g"), 3) << "loss, accuracy, learning rate";
  EXPECT_EQ(count_of(elements, "polyline"), 4) << "the loss of training and of evaluation";
  EXPECT_EQ(count_of(elements, "circle"), 8);
  for (const char* text : {">loss<", ">accuracy<", ">learning rate<", ">training<", ">evaluation<", ">epoch<", ">0.3<"})
    EXPECT_THAT(svg, HasSubstr(text));
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
}

// The first curve's points, in pixels.
std::vector<std::pair<double, double>> first_polyline(const std::string& svg) {
  std::smatch found;
  if (!std::regex_search(svg, found, std::regex("points=\"([^\"]*)\""))) return {};
  const std::string text = found[1];
  std::vector<std::pair<double, double>> points;
  const std::regex point("([-0-9.]+),([-0-9.]+)");
  for (std::sregex_iterator at(text.begin(), text.end(), point), end; at != end; ++at)
    points.emplace_back(std::stod((*at)[1]), std::stod((*at)[2]));
  return points;
}

TEST(Curves, MapNumbersToPixels) {
  const Chart chart{.title = "a", .x_label = "b", .curves = {{.label = "c", .points = {{0, 0}, {1, 4}, {4, 1}}}}};
  const auto points = first_polyline(render_chart(chart, 10, 20, 400, 300));
  ASSERT_EQ(points.size(), 3U);
  EXPECT_NEAR((points[1].first - points[0].first) / (points[2].first - points[0].first), 0.25, 1e-3);
  EXPECT_NEAR((points[0].second - points[2].second) / (points[0].second - points[1].second), 0.25, 1e-3);
  EXPECT_LT(points[1].second, points[0].second) << "large is up";
  for (const auto& [x, y] : points) EXPECT_TRUE(x > 10 && x < 410 && y > 20 && y < 320);
}

TEST(Curves, LeaveGapForNonFiniteNumbers) {
  History history;
  for (int i = 0; i < 5; ++i)
    history.push_back({.epoch = i + 1.0, .step = i, .train_loss = i == 2 ? kNan : 1.0 / (i + 1)});
  const std::string svg = render_curves(history);
  const auto elements = elements_of(svg);
  EXPECT_EQ(count_of(elements, "polyline"), 3) << "two parts of the loss, and the learning rate";
  EXPECT_THAT(svg, Not(HasSubstr("nan")));
  EXPECT_FALSE(elements_of(render_curves({})).empty()) << "a run without an evaluation";
  EXPECT_FALSE(elements_of(render_curves({two_epochs()[0]})).empty()) << "one";
}

TEST(Curves, EscapeNames) {
  History history = two_epochs();
  history[0].metrics = {{"a<b & \"c\">", 1}};
  const std::string svg = render_curves(history);
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; \"c\"&gt;"));
  EXPECT_FALSE(elements_of(svg).empty());
}

}  // namespace
}  // namespace oarlock
