// A chart as part of an SVG document: axes with round ticks, curves, a legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace oarlock {

struct Curve {
  std::string label;
  std::vector<std::pair<double, double>> points;  // by ascending x; what is not finite leaves a gap
};

struct Chart {
  std::string title;
  std::string x_label;
  std::vector<Curve> curves;
};

// Numbers that are 1, 2 or 5 times a power of ten apart, about `count` of them between the two; both of them where they
// are equal or not finite.
std::vector<double> round_ticks(double low, double high, int count);

// A <g> of the given size with its upper left corner at (x, y).
std::string render_chart(const Chart& chart, double x, double y, double width, double height);

// Text as the content of an element.
std::string xml_text(const std::string& text);

}  // namespace oarlock
