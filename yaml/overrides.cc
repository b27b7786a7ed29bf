// Overrides of values in a tree: Node::with() and with_overrides().
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "common/status_macros.h"
#include "common/text.h"
#include "yaml/internal.h"

namespace oarlock::yaml {
namespace {

constexpr Mark kCommandLine = {.on_command_line = true};

Node make_command_line_node(Node::Kind kind) {
  Node::Data data;
  data.kind = kind;
  data.mark = kCommandLine;
  return make_node(std::move(data));
}

// One step of a path: a key of a map or an index of a list.
struct Step {
  std::string key;
  std::optional<size_t> index;
};

// Parses a part of a path such as "groups[0][1]", a key and its indices. Returns false if it is invalid.
bool append_steps(std::string_view part, std::vector<Step>& steps) {
  const size_t bracket = std::min(part.find('['), part.size());
  if (bracket == 0) return false;
  steps.push_back({std::string(part.substr(0, bracket)), std::nullopt});
  part.remove_prefix(bracket);
  while (!part.empty()) {
    size_t index = 0;
    const auto [end, error] = std::from_chars(part.data() + 1, part.data() + part.size(), index);
    if (part.front() != '[' || error != std::errc() || end == part.data() + part.size() || *end != ']') return false;
    steps.push_back({"", index});
    part.remove_prefix(static_cast<size_t>(end - part.data()) + 1);
  }
  return true;
}

std::optional<std::vector<Step>> steps_of(std::string_view path) {
  std::vector<Step> steps;
  while (true) {
    const size_t dot = std::min(path.find('.'), path.size());
    if (!append_steps(path.substr(0, dot), steps)) return std::nullopt;
    if (steps.size() > limits::kDepth) return std::nullopt;
    if (dot == path.size()) return steps;
    path.remove_prefix(dot + 1);
  }
}

std::string text_of(std::span<const Step> steps) {
  std::string out;
  for (const Step& step : steps) {
    if (step.index) {
      out += fmt::format("[{}]", *step.index);
    } else {
      out += (out.empty() ? "" : ".") + step.key;
    }
  }
  return out;
}

// Returns a copy of `node`, the node after the first `done` steps, in which the remaining steps lead to `value`.
Result<Node> replaced(const Node& node, std::span<const Step> steps, size_t done, const Node& value) {
  if (done == steps.size()) return value;
  const Step& step = steps[done];
  const std::string here = done == 0 ? "the configuration" : fmt::format("'{}'", shortened(text_of(steps.first(done))));
  const bool is_new = node.kind() == Node::Kind::kNull;
  Node::Data out;
  out.mark = is_new ? kCommandLine : node.mark();
  out.entries = node.entries();
  out.items = node.items();
  if (step.index) {
    if (!is_new && node.kind() != Node::Kind::kSequence) {
      return fail(ExitCode::kUsage, fmt::format("{} is not a list", here));
    }
    if (*step.index > out.items.size()) {
      return fail(ExitCode::kUsage, fmt::format("{} has {}, so the next one is [{}]", here,
                                                counted(out.items.size(), "element"), out.items.size()));
    }
    out.kind = Node::Kind::kSequence;
    if (*step.index == out.items.size()) out.items.push_back(make_command_line_node(Node::Kind::kNull));
    Result<Node> inner = replaced(out.items[*step.index], steps, done + 1, value);
    if (inner) out.items[*step.index] = std::move(*inner);
    return inner.map([&](const Node&) { return make_node(std::move(out)); });
  }
  if (!is_new && node.kind() != Node::Kind::kMap) {
    return fail(ExitCode::kUsage, fmt::format("{} is not a map, so there is no '{}' in it", here, shortened(step.key)));
  }
  out.kind = Node::Kind::kMap;
  auto entry = std::find_if(out.entries.begin(), out.entries.end(),
                            [&](const Node::Entry& candidate) { return candidate.key == step.key; });
  if (entry == out.entries.end()) {
    entry = out.entries.insert(entry, {step.key, kCommandLine, make_command_line_node(Node::Kind::kNull)});
  }
  Result<Node> inner = replaced(entry->value, steps, done + 1, value);
  if (inner) entry->value = std::move(*inner);
  return inner.map([&](const Node&) { return make_node(std::move(out)); });
}

Result<Node> value_of(const std::string& text) {
  ASSIGN_OR_RETURN(const std::vector<Node> documents, parse_command_line(text));
  if (documents.size() > 1) return fail(ExitCode::kUsage, "several YAML documents are not a value");
  return documents.empty() ? make_command_line_node(Node::Kind::kNull) : documents.front();
}

Result<Node> with_override(const Node& root, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ExitCode::kUsage,
                fmt::format("command line: '{}' is not key=value, such as optimizer.lr=0.1", shortened(word)));
  }
  const std::string path = word.substr(0, equals);
  return value_of(word.substr(equals + 1))
      .and_then([&](const Node& value) { return root.with(path, value); })
      .map_error([&](const Error& error) {
        return Error{ExitCode::kUsage, fmt::format("command line: {}: {}", shortened(path), error.message)};
      });
}

}  // namespace

Result<Node> Node::with(std::string_view path, const Node& value) const {
  const std::optional<std::vector<Step>> steps = steps_of(path);
  if (!steps) return fail(ExitCode::kUsage, "is not a path of keys and indices, such as optimizer.groups[0].lr");
  return replaced(*this, *steps, 0, value);
}

Result<Node> with_overrides(const Node& root, const std::vector<std::string>& words) {
  Node out = root;
  std::vector<std::string> problems;
  for (const std::string& word : words) {
    Result<Node> next = with_override(out, word);
    if (next) {
      out = std::move(*next);
    } else {
      problems.push_back(next.error().message);
    }
  }
  if (problems.empty()) return out;
  return fail(ExitCode::kUsage, fmt::format("{}", fmt::join(problems, "\n")));
}

Node empty_map() { return make_command_line_node(Node::Kind::kMap); }

}  // namespace oarlock::yaml
