// A line chart as a part of an SVG document: axes with round ticks, curves, and a legend.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace oarlock {

struct Curve {
  std::string label;
  std::vector<std::pair<double, double>> points;  // in ascending order of x; a point that is not finite leaves a gap
};

struct Chart {
  std::string title;
  std::string x_label;
  std::vector<Curve> curves;
};

// Returns about `count` multiples of 1, 2 or 5 times a power of ten between the two numbers; returns both numbers if
// they are equal or not finite.
std::vector<double> round_ticks(double low, double high, int count);

// Returns a <g> element of the given size in pixels with its upper left corner at (x, y).
std::string render_chart(const Chart& chart, double x, double y, double width, double height);

// Escapes text for the content of an element.
std::string xml_text(const std::string& text);

}  // namespace oarlock
