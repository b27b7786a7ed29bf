// Numbers in texts.
#include "common/number.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

namespace oarlock {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

TEST(ParseInteger, Numbers) {
  EXPECT_EQ(parse_integer<int>("0"), 0);
  EXPECT_EQ(parse_integer<int>("-007"), -7);
  EXPECT_EQ(parse_integer<uint64_t>("18446744073709551615"), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(parse_integer<int64_t>("-9223372036854775808"), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(parse_integer<int>("fF", 16), 255);
}

TEST(ParseInteger, OtherTexts) {
  for (const std::string text :
       {"", "-", "+1", " 1", "1 ", "1.0", "1e3", "0x1", "1_000", "2147483648", "-2147483649"}) {
    EXPECT_EQ(parse_integer<int>(text), std::nullopt) << text;
  }
  EXPECT_EQ(parse_integer<size_t>("-1"), std::nullopt);
  EXPECT_EQ(parse_integer<int>(std::string_view("1\0", 2)), std::nullopt);
}

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
