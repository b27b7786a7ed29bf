#include "trainer/report/svg_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace oarlock {
namespace {

constexpr std::array<const char*, 4> kColors = {"#1f77b4", "#d62728", "#2ca02c", "#9467bd"};
constexpr double kLeft = 58;  // margins of the plot, for the labels of the axes
constexpr double kRight = 12;
constexpr double kTop = 28;
constexpr double kBottom = 40;
constexpr double kMargin = 0.05;  // above and below the curves, as a fraction of their height
constexpr int kTicks = 5;
constexpr double kLegendLine = 14;

struct Interval {
  double low = std::numeric_limits<double>::infinity();
  double high = -std::numeric_limits<double>::infinity();

  void include(double value) {
    low = std::min(low, value);
    high = std::max(high, value);
  }
  bool empty() const { return low > high; }
  double fraction(double value) const { return (value - low) / (high - low); }
};

// The mapping from data to pixels.
struct Plot {
  double left, top, width, height;
  Interval x, y;

  double at_x(double value) const { return left + x.fraction(value) * width; }
  double at_y(double value) const { return top + (1 - y.fraction(value)) * height; }
};

bool is_finite(const std::pair<double, double>& point) {
  return std::isfinite(point.first) && std::isfinite(point.second);
}

// Returns an interval of positive width.
Interval widened(Interval interval) {
  if (interval.empty()) return {0, 1};
  if (interval.low < interval.high) return interval;
  const double margin = std::max(std::abs(interval.low) * 0.1, 1e-6);
  return {interval.low - margin, interval.high + margin};
}

void fit_axes(const Chart& chart, Plot& plot) {
  for (const Curve& curve : chart.curves) {
    for (const auto& point : curve.points) {
      if (!is_finite(point)) continue;
      plot.x.include(point.first);
      plot.y.include(point.second);
    }
  }
  plot.x = widened(plot.x);
  plot.y = widened(plot.y);
  const double margin = kMargin * (plot.y.high - plot.y.low);
  plot.y = {plot.y.low - margin, plot.y.high + margin};
}

std::string text_at(double x, double y, const char* anchor, const std::string& text, const char* more = "") {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\"{}>{}</text>\n", x, y, anchor, more,
                     xml_text(text));
}

std::string line(double x1, double y1, double x2, double y2, const char* color) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" stroke=\"{}\"/>\n", x1, y1, x2, y2,
                     color);
}

std::string render_axes(const Plot& plot) {
  std::string out;
  const double bottom = plot.top + plot.height;
  for (const double tick : round_ticks(plot.y.low, plot.y.high, kTicks)) {
    out += line(plot.left, plot.at_y(tick), plot.left + plot.width, plot.at_y(tick), "#dddddd");
    out += text_at(plot.left - 6, plot.at_y(tick) + 4, "end", fmt::format("{:.4g}", tick));
  }
  for (const double tick : round_ticks(plot.x.low, plot.x.high, kTicks)) {
    out += line(plot.at_x(tick), bottom, plot.at_x(tick), bottom + 4, "#333333");
    out += text_at(plot.at_x(tick), bottom + 16, "middle", fmt::format("{:.4g}", tick));
  }
  out += line(plot.left, plot.top, plot.left, bottom, "#333333");
  out += line(plot.left, bottom, plot.left + plot.width, bottom, "#333333");
  return out;
}

// A polyline for each sequence of finite points, and a dot for each point, so that a single one is visible.
std::string render_curve(const Curve& curve, const Plot& plot, const char* color) {
  std::string out;
  std::string points;
  const auto end_line = [&] {
    if (!points.empty())
      out += fmt::format("<polyline fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\" points=\"{}\"/>\n", color, points);
    points.clear();
  };
  for (const auto& point : curve.points) {
    if (!is_finite(point)) {
      end_line();
      continue;
    }
    const double x = plot.at_x(point.first);
    const double y = plot.at_y(point.second);
    points += fmt::format("{}{:.1f},{:.1f}", points.empty() ? "" : " ", x, y);
    out += fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"2\" fill=\"{}\"/>\n", x, y, color);
  }
  end_line();
  return out;
}

// Empty for a single curve.
std::string render_legend(const Chart& chart, const Plot& plot) {
  std::string out;
  if (chart.curves.size() < 2) return out;
  const double right = plot.left + plot.width - 8;
  for (size_t i = 0; i < chart.curves.size(); ++i) {
    const double y = plot.top + kLegendLine * static_cast<double>(i + 1);
    const char* color = kColors[i % kColors.size()];
    out += line(right - 18, y - 4, right, y - 4, color);
    out += text_at(right - 24, y, "end", chart.curves[i].label);
  }
  return out;
}

}  // namespace

std::vector<double> round_ticks(double low, double high, int count) {
  if (!(low < high) || !std::isfinite(high - low)) return {low, high};
  const double rough = (high - low) / count;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * (1 - 1e-9)) {
      step = factor * power;
      break;
    }
  }
  std::vector<double> ticks;
  const auto last = static_cast<int64_t>(std::floor(high / step + 1e-9));
  for (auto i = static_cast<int64_t>(std::ceil(low / step - 1e-9)); i <= last; ++i)
    ticks.push_back(static_cast<double>(i) * step);
  return ticks;
}

std::string render_chart(const Chart& chart, double x, double y, double width, double height) {
  Plot plot{x + kLeft, y + kTop, width - kLeft - kRight, height - kTop - kBottom, {}, {}};
  fit_axes(chart, plot);
  std::string out = "<g>\n";
  out += text_at(x + width / 2, y + 16, "middle", chart.title, " font-weight=\"bold\"");
  out += render_axes(plot);
  for (size_t i = 0; i < chart.curves.size(); ++i)
    out += render_curve(chart.curves[i], plot, kColors[i % kColors.size()]);
  out += render_legend(chart, plot);
  out += text_at(plot.left + plot.width / 2, y + height - 6, "middle", chart.x_label);
  return out + "</g>\n";
}

std::string xml_text(const std::string& text) {
  std::string out;
  for (const char letter : text) {
    if (letter == '&') {
      out += "&amp;";
    } else if (letter == '<') {
      out += "&lt;";
    } else if (letter == '>') {
      out += "&gt;";
    } else {
      out += letter;
    }
  }
  return out;
}

}  // namespace oarlock
