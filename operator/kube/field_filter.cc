#include "operator/kube/field_filter.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <vector>

namespace oarlock::kube {
namespace {

using Json = nlohmann::json;
using Node = FieldFilter::Node;

// Builds a tree of what the filter keeps. `skipping_` counts the open objects and arrays of a value that is left out.
class FilteringHandler final : public nlohmann::json_sax<Json> {
 public:
  FilteringHandler(const Node& root, Json& out) : out_(out), next_(&root) {}

  bool null() override { return scalar(nullptr); }
  bool boolean(bool value) override { return scalar(value); }
  bool number_integer(number_integer_t value) override { return scalar(value); }
  bool number_unsigned(number_unsigned_t value) override { return scalar(value); }
  bool number_float(number_float_t value, const string_t&) override { return scalar(value); }
  bool string(string_t& value) override { return scalar(std::move(value)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(size_t) override { return open(Json::value_t::object); }
  bool start_array(size_t) override { return open(Json::value_t::array); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    if (skipping_ > 0) return true;
    const Level& top = levels_.back();
    if (top.filter->everything) {
      next_ = top.filter;
    } else {
      const auto found = top.filter->members.find(name);
      next_ = found == top.filter->members.end() ? nullptr : &found->second;
    }
    if (next_ != nullptr) key_ = std::move(name);
    return true;
  }

  bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
    problem_ = error.what();
    return false;
  }

  const std::string& problem() const { return problem_; }

 private:
  struct Level {
    Json* value;
    const Node* filter;
  };

  // The place for the value that comes now; null: it is left out.
  Json* place() {
    if (levels_.empty()) return &out_;
    const Level& top = levels_.back();
    if (top.value->is_array()) {
      next_ = top.filter;
      top.value->emplace_back();
      return &top.value->back();
    }
    return next_ == nullptr ? nullptr : &(*top.value)[key_];
  }

  template <typename T>
  bool scalar(T&& value) {
    if (skipping_ > 0) return true;
    if (Json* target = place()) *target = std::forward<T>(value);
    return true;
  }

  bool open(Json::value_t type) {
    if (skipping_ > 0) {
      ++skipping_;
      return true;
    }
    Json* target = place();
    if (target == nullptr) {
      skipping_ = 1;
      return true;
    }
    *target = Json(type);
    levels_.push_back({target, next_});
    return true;
  }

  bool close() {
    if (skipping_ > 0) {
      --skipping_;
    } else {
      levels_.pop_back();
    }
    return true;
  }

  Json& out_;
  const Node* next_;  // filter of the next value; null: leave it out
  std::string key_;
  std::vector<Level> levels_;
  int skipping_ = 0;
  std::string problem_;
};

void add_path(Node& node, std::string_view path) {
  std::string key;
  for (size_t i = 0; i < path.size(); ++i) {
    if (path[i] == '\\' && i + 1 < path.size()) {
      key += path[++i];
    } else if (path[i] == '.') {
      return add_path(node.members[key], path.substr(i + 1));
    } else {
      key += path[i];
    }
  }
  node.members[key].everything = true;
}

}  // namespace

FieldFilter::FieldFilter(std::initializer_list<std::string_view> paths) {
  for (const std::string_view path : paths) add(path);
}

void FieldFilter::add(std::string_view path) { add_path(root_, path); }

FieldFilter FieldFilter::with(std::initializer_list<std::string_view> paths) const {
  FieldFilter out = *this;
  for (const std::string_view path : paths) out.add(path);
  return out;
}

FieldFilter FieldFilter::nested(std::string_view key, std::initializer_list<std::string_view> beside) const {
  FieldFilter out;
  out.root_.members.emplace(key, root_);
  for (const std::string_view path : beside) out.add(path);
  return out;
}

Result<Json> FieldFilter::parse(std::string_view text) const {
  Json out;
  FilteringHandler handler(root_, out);
  if (Json::sax_parse(text, &handler)) return out;
  return fail(ExitCode::kDataErr, handler.problem().empty() ? "not JSON" : handler.problem());
}

}  // namespace oarlock::kube
