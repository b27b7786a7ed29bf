// A reflector with a store behind it: the objects of a selection as structs of type T, and a call for each change.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <utility>

#include "common/error.h"
#include "operator/kube/reflector.h"
#include "operator/kube/store.h"

namespace oarlock::kube {

template <typename T>
class Informer final : private ReflectorTarget, private ReflectorObserver {
 public:
  struct Hooks {
    // What is kept of an object. A failure leaves the object as it was known before, and is given to on_unreadable.
    std::function<Result<T>(const nlohmann::json& object)> project;
    typename Store<T>::IndexOf index_of;
    // After the store has changed; null before: added, null after: deleted. On the informer's thread.
    std::function<void(const ObjectKey&, const T* before, const T* after)> on_change;
    std::function<void(const ObjectKey&, const Error&)> on_unreadable;
    std::function<void(const ApiError&)> on_problem;
    std::function<void(size_t objects)> on_synced;
  };

  // `options.fields` is what `project` reads; the key's and the version's fields are added.
  Informer(ReflectorOptions options, Hooks hooks, std::shared_ptr<Transport> transport,
           std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper, Random random)
      : hooks_(std::move(hooks)),
        store_(hooks_.index_of),
        reflector_(with_key_fields(std::move(options)), std::move(transport), *this, *this, std::move(clock),
                   std::move(sleeper), std::move(random)) {}

  void run(const std::stop_token& stop) { reflector_.run(stop); }

  const Store<T>& store() const { return store_; }
  bool synced() const { return synced_; }

  // Has the store everything that happened up to this version?
  bool has_seen(const std::string& resource_version) const {
    const std::lock_guard lock(mutex_);
    return compare_resource_versions(seen_, resource_version) >= 0;
  }

 private:
  static ReflectorOptions with_key_fields(ReflectorOptions options) {
    options.fields = options.fields.with({"metadata.namespace", "metadata.name"});
    return options;
  }

  static ObjectKey key_of(const nlohmann::json& object) {
    ObjectKey key;
    if (const auto metadata = object.find("metadata"); metadata != object.end() && metadata->is_object()) {
      key.name_space = metadata->value("namespace", "");
      key.name = metadata->value("name", "");
    }
    return key;
  }

  std::shared_ptr<const T> projected(const ObjectKey& key, const nlohmann::json& object) {
    Result<T> value = hooks_.project(object);
    if (value) return std::make_shared<const T>(std::move(*value));
    hooks_.on_unreadable(key, value.error());
    return nullptr;
  }

  void set_seen(const std::string& version) {
    const std::lock_guard lock(mutex_);
    seen_ = version;
  }

  void begin_replace() override { coming_.clear(); }
  void abandon_replace() override { typename Store<T>::Entries().swap(coming_); }
  void replace_object(nlohmann::json object) override {
    const ObjectKey key = key_of(object);
    std::string version = object["metadata"].value("resourceVersion", "");
    typename Store<T>::Entry entry = store_.entry(key);
    // The same version is the same object: shared, so that a relist takes next to no memory.
    if (entry.object == nullptr || version.empty() || entry.version != version) {
      if (std::shared_ptr<const T> fresh = projected(key, object)) entry = {std::move(fresh), std::move(version)};
    }
    if (entry.object != nullptr) coming_.insert_or_assign(key, std::move(entry));
  }
  void commit_replace(const std::string& resource_version) override {
    typename Store<T>::Entries now = coming_;  // entries are shared pointers
    const typename Store<T>::Entries before = store_.replace(std::exchange(coming_, {}));
    set_seen(resource_version);
    for (const auto& [key, entry] : now) {
      const auto old = before.find(key);
      const T* was = old == before.end() ? nullptr : old->second.object.get();
      if (was != entry.object.get()) hooks_.on_change(key, was, entry.object.get());
    }
    for (const auto& [key, entry] : before) {
      if (!now.contains(key)) hooks_.on_change(key, entry.object.get(), nullptr);
    }
  }

  void change(ChangeType type, nlohmann::json object, const std::string& resource_version) override {
    const ObjectKey key = key_of(object);
    std::shared_ptr<const T> before;
    std::shared_ptr<const T> after;
    if (type == ChangeType::kDeleted) {
      before = store_.erase(key);
    } else if ((after = projected(key, object)) != nullptr) {
      before = store_.put(key, {after, resource_version});
    }
    set_seen(resource_version);
    if (before != nullptr || after != nullptr) hooks_.on_change(key, before.get(), after.get());
  }
  void bookmark(const std::string& resource_version) override { set_seen(resource_version); }

  void on_problem(const ApiError& error) override { hooks_.on_problem(error); }
  void on_synced() override {
    synced_ = true;
    hooks_.on_synced(store_.size());
  }

  const Hooks hooks_;
  Store<T> store_;
  typename Store<T>::Entries coming_;
  std::atomic<bool> synced_ = false;
  mutable std::mutex mutex_;
  std::string seen_;
  Reflector reflector_;
};

}  // namespace oarlock::kube
