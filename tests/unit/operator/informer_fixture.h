// An informer of things with a color, against a scripted API server: no network, no waiting.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <memory>
#include <set>
#include <stop_token>
#include <string>
#include <vector>

#include "kube/client/informer.h"
#include "tests/support/scripted_transport.h"

namespace oarlock::kube {

struct Thing {
  std::string color;
};

inline std::string object(const std::string& name, const std::string& version, const std::string& color) {
  return R"({"metadata":{"namespace":"ns","name":")" + name + R"(","resourceVersion":")" + version +
         R"(","managedFields":[{"x":{}}]},"color":")" + color + R"(","noise":[1,2]})";
}
inline std::string list(const std::string& version, const std::vector<std::string>& items,
                        const std::string& more = "") {
  std::string text = R"({"kind":"ThingList","metadata":{"resourceVersion":")" + version + R"(","continue":")" + more +
                     R"("},"items":[)";
  for (size_t i = 0; i < items.size(); ++i) text += (i > 0 ? "," : "") + items[i];
  return text + "]}\n";
}
inline std::string event(const std::string& type, const std::string& what) {
  return R"({"type":")" + type + R"(","object":)" + what + "}\n";
}
inline std::string bookmark(const std::string& version) {
  return event("BOOKMARK", R"({"kind":"Thing","metadata":{"resourceVersion":")" + version + R"("}})");
}
inline std::string error(int code, const std::string& reason, const std::string& message) {
  return event("ERROR", R"({"kind":"Status","code":)" + std::to_string(code) + R"(,"reason":")" + reason +
                            R"(","message":")" + message + R"("})");
}
class InformerTest : public ::testing::Test {
 protected:
  explicit InformerTest(bool watch_list = false) : watch_list_(watch_list) {}

  void SetUp() override { make_informer({}); }

  // Starts again with an empty server and a new informer.
  void make_informer(std::function<Thing(const nlohmann::json&, const Error&)> stand_in) {
    stop_ = std::stop_source();
    transport_ = std::make_shared<test::ScriptedTransport>(clock_);
    incomplete_.clear();
    changes_.clear(), announced_.clear(), unreadable_.clear(), problems_.clear(), synced_.clear();
    transport_->at_end([this] { stop_.request_stop(); });
    ReflectorOptions options{.resource = {"g", "v1", "things"}, .selection = {}, .fields = FieldFilter({"color"})};
    options.page_size = 2;
    options.watch_list = watch_list_;
    options.max_objects = max_objects_;
    options.max_bytes = max_bytes_;
    Informer<Thing>::Hooks hooks;
    hooks.project = [this](const nlohmann::json& body) -> Result<Thing> {
      ++projections_;
      EXPECT_FALSE(body.contains("noise"));
      if (body.value("color", "") == "throw") throw std::runtime_error("thrown");
      if (body.value("color", "") == "unreadable") return fail(ExitCode::kConfig, "no such color");
      return Thing{body.value("color", "")};
    };
    hooks.index_of = [](const ObjectKey&, const Thing& thing) { return thing.color; };
    hooks.bytes_of = [](const Thing& thing) { return sizeof thing + thing.color.capacity(); };
    hooks.drop_order = [](const Thing& thing) { return DropOrder{.rank = static_cast<int>(thing.color.size())}; };
    hooks.on_incomplete = [this](const std::set<std::string>& namespaces) { incomplete_.push_back(namespaces); };
    hooks.on_change = [this](const ObjectKey& key, const Thing* before, const Thing* after) {
      changes_.push_back(key.name + ":" + (before ? before->color : "-") + ">" + (after ? after->color : "-"));
    };
    hooks.before_change = [this](const ObjectKey& key, const Thing* before, const Thing* after) {
      const std::string stored = color_of(key.name, key.namespace_name);
      EXPECT_EQ(stored, before ? before->color : "(none)") << "before_change is called after the store has changed";
      announced_.push_back(key.name + ":" + stored + ">" + (after ? after->color : "-"));
    };
    hooks.on_unreadable = [this](const ObjectKey& key, const Error& e) {
      unreadable_.push_back(key.to_string() + ": " + e.message);
    };
    hooks.on_problem = [this](const ApiError& e) { problems_.push_back(e.message); };
    hooks.on_listing = [this] { ++listings_; };
    hooks.on_synced = [this](size_t count) { synced_.push_back(count); };
    hooks.on_watching = [this] { ++watching_; };
    hooks.placeholder = std::move(stand_in);
    informer_ = std::make_unique<Informer<Thing>>(options, hooks, transport_, clock_, sleeper_, [] { return 0.5; });
  }

  void run() { informer_->run(stop_.get_token()); }
  std::vector<std::string> targets() const {
    std::vector<std::string> out;
    for (const http::Request& request : transport_->requests())
      out.push_back(request.target.substr(std::string("/apis/g/v1/things").size()));
    return out;
  }
  static std::string watch_from(const std::string& version) {
    return "?watch=true&allowWatchBookmarks=true&resourceVersion=" + version + "&timeoutSeconds=450";
  }
  std::string color_of(const std::string& name, const std::string& namespace_name = "ns") const {
    const auto thing = informer_->store().get({namespace_name, name});
    return thing ? thing->color : "(none)";
  }

  std::shared_ptr<test::FakeClock> clock_ = std::make_shared<test::FakeClock>();
  std::shared_ptr<test::ScriptedTransport> transport_ = std::make_shared<test::ScriptedTransport>(clock_);
  std::shared_ptr<test::RecordingSleeper> sleeper_ = std::make_shared<test::RecordingSleeper>(clock_);
  std::stop_source stop_;
  std::unique_ptr<Informer<Thing>> informer_;
  std::vector<std::string> changes_, announced_, unreadable_, problems_;
  std::vector<size_t> synced_;
  int projections_ = 0;
  int listings_ = 0;
  int watching_ = 0;
  size_t max_objects_ = 1000;
  size_t max_bytes_ = 64u << 20;
  std::vector<std::set<std::string>> incomplete_;
  const bool watch_list_;
};
inline std::string damaged(const std::string& name, const std::string& version) {
  return R"({"metadata":{"namespace":"ns","name":")" + name + R"(","resourceVersion":")" + version +
         R"("},"color":tru})";
}

}  // namespace oarlock::kube
