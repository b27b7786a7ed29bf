// Numbers in texts.
#include "common/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace oarlock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ParseDouble, Numbers) {
  EXPECT_EQ(parse_double("-1.5e-3"), -1.5e-3);
  EXPECT_EQ(parse_double("+2"), 2);
  EXPECT_EQ(parse_double(".5"), 0.5);
  EXPECT_EQ(parse_double("0.1"), 0.1);
  EXPECT_EQ(parse_double("inf"), kInfinity);
  EXPECT_EQ(parse_double("-Infinity"), -kInfinity);
  EXPECT_TRUE(std::isnan(parse_double("NaN").value()));
}

TEST(ParseDouble, NumbersThatNoDoubleRepresents) {
  EXPECT_EQ(parse_double("4.9e-324"), std::numeric_limits<double>::denorm_min());
  EXPECT_EQ(parse_double("1e-400"), 0);
  EXPECT_TRUE(std::signbit(parse_double("-1e-400").value()));
  EXPECT_EQ(parse_double("1e400"), kInfinity);
  EXPECT_EQ(parse_double("+1e400"), kInfinity);
  EXPECT_EQ(parse_double("-1e400"), -kInfinity);
  EXPECT_EQ(parse_double("0." + std::string(400, '0') + "1"), 0);
  EXPECT_EQ(parse_double("1" + std::string(400, '0')), kInfinity);
}

TEST(ParseDouble, OtherTexts) {
  for (const std::string text :
       {"", "+", "-", "+-1", "++1", "1 ", " 1", "1,5", "0x1p3", "1e", "e5", "1_000", "one", "1e400x"}) {
    EXPECT_EQ(parse_double(text), std::nullopt) << text;
  }
  const std::string_view with_end("1\0", 2);
  EXPECT_EQ(parse_double(with_end), std::nullopt);
}

}  // namespace
}  // namespace oarlock
