#include "workloads/formats/json_list.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "common/text.h"

namespace oarlock {
namespace {

using Json = nlohmann::json;

// Builds the elements. nlohmann's parser with a callback is not suitable: after each object, it searches the siblings
// for discarded ones, and it keeps elements that are not objects.
class ListHandler final : public Json::json_sax_t {
 public:
  ListHandler(std::string_view noun, const std::function<Result<void>(const Json&)>& take) : noun_(noun), take_(take) {}

  // The first error; a value if there was none.
  const Result<void>& result() const { return result_; }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t&) override { return false; }  // not in texts
  bool start_object(size_t) override { return open(Json::object()); }
  bool end_object() override { return close(); }
  bool start_array(size_t) override {
    if (is_open_) return open(Json::array());
    is_open_ = true;
    return true;
  }
  bool end_array() override { return open_.empty() || close(); }  // the former at the end of the list
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    return reject(json_problem(error));
  }

 private:
  bool reject(std::string message) {
    if (result_) result_ = fail(ExitCode::kDataErr, std::move(message));
    return false;
  }
  bool reject_element(const std::string& message) { return reject(fmt::format("{} {}: {}", noun_, index_, message)); }

  // Adds a value to the innermost list or object that is open, and returns its place; null if it is not accepted.
  Json* insert(Json value) {
    if (!is_open_) {
      reject(fmt::format("a list [...] of {}s is expected", noun_));
      return nullptr;
    }
    if (++values_ > kMaxListElementValues) {
      reject_element(fmt::format("has more than {} values", kMaxListElementValues));
      return nullptr;
    }
    if (open_.empty()) return &(element_ = std::move(value));
    Json& parent = *open_.back();
    if (parent.is_object()) return &(parent[key_] = std::move(value));
    return &parent.emplace_back(std::move(value));
  }
  bool add(Json value) { return insert(std::move(value)) != nullptr && (!open_.empty() || finish()); }
  bool open(Json value) {
    if (open_.size() == kMaxListElementDepth)
      return reject_element(fmt::format("nested deeper than {} levels", kMaxListElementDepth));
    Json* const place = insert(std::move(value));
    if (place != nullptr) open_.push_back(place);
    return place != nullptr;
  }
  bool close() {
    open_.pop_back();
    return !open_.empty() || finish();
  }
  bool finish() {
    const Result<void> taken = take_(std::exchange(element_, nullptr));
    if (!taken) return reject_element(taken.error().message);
    ++index_;
    values_ = 0;
    return true;
  }

  std::string_view noun_;
  const std::function<Result<void>(const Json&)>& take_;
  Result<void> result_;
  bool is_open_ = false;  // the list
  int64_t index_ = 0;
  size_t values_ = 0;  // of the element
  Json element_;
  std::vector<Json*> open_;  // the lists and objects of the element that are not complete, the innermost last
  std::string key_;
};

}  // namespace

std::string json_problem(const nlohmann::detail::exception& error) {
  constexpr size_t kShown = 300;
  const std::string_view what = error.what();
  const size_t begin = what.find("] ");  // after the name of the exception
  return shortened(begin == std::string_view::npos ? what : what.substr(begin + 2), kShown);
}

Result<void> read_json_list(std::istream& in, std::string_view noun,
                            const std::function<Result<void>(const Json&)>& take) {
  ListHandler handler(noun, take);
  Json::sax_parse(in, &handler);
  return handler.result();
}

}  // namespace oarlock
