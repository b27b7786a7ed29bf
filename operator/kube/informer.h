// A reflector with a store behind it: the objects of a selection as structs of type T, and a call for each change.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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

  using RecordPtr = typename Store<T>::RecordPtr;

  // Null: unreadable.
  RecordPtr projected(const ObjectKey& key, std::string_view version, const nlohmann::json& object) {
    Result<T> value = hooks_.project(object);
    if (value) return Store<T>::make_record(key, version, std::move(*value));
    hooks_.on_unreadable(key, value.error());
    return nullptr;
  }

  void tell(const typename Store<T>::Change& change) {
    const auto object = [](const RecordPtr& record) { return record == nullptr ? nullptr : &record->object; };
    const RecordPtr& known = change.after != nullptr ? change.after : change.before;
    if (known != nullptr) hooks_.on_change(known->key.key(), object(change.before), object(change.after));
  }

  void set_seen(const std::string& version) {
    const std::lock_guard lock(mutex_);
    seen_ = version;
  }

  void begin_replace() override { coming_.clear(); }
  void abandon_replace() override { typename Store<T>::Records().swap(coming_); }
  void replace_object(nlohmann::json object) override {
    const ObjectKey key = key_of(object);
    const std::string version = object["metadata"].value("resourceVersion", "");
    RecordPtr record = store_.record(key);
    // The same version is the same object: shared, so that a relist takes next to no memory.
    if (record == nullptr || version.empty() || record->key.version() != version) {
      if (RecordPtr fresh = projected(key, version, object)) record = std::move(fresh);
    }
    if (record == nullptr) return;
    coming_.erase(record);
    coming_.insert(std::move(record));
  }
  void replace_deleted(nlohmann::json object) override {
    if (const auto it = coming_.find(key_of(object)); it != coming_.end()) coming_.erase(it);
  }
  void commit_replace(const std::string& resource_version) override {
    const std::vector<typename Store<T>::Change> changes = store_.replace(std::exchange(coming_, {}));
    set_seen(resource_version);
    for (const auto& change : changes) tell(change);
  }

  void change(ChangeType type, nlohmann::json object, const std::string& resource_version) override {
    const ObjectKey key = key_of(object);
    typename Store<T>::Change change;
    if (type == ChangeType::kDeleted) {
      change.before = store_.erase(key);
    } else if ((change.after = projected(key, resource_version, object)) != nullptr) {
      change.before = store_.put(change.after);
    }
    set_seen(resource_version);
    tell(change);
  }
  void bookmark(const std::string& resource_version) override { set_seen(resource_version); }

  void on_problem(const ApiError& error) override { hooks_.on_problem(error); }
  void on_synced() override {
    synced_ = true;
    hooks_.on_synced(store_.size());
  }

  const Hooks hooks_;
  Store<T> store_;
  typename Store<T>::Records coming_;
  std::atomic<bool> synced_ = false;
  mutable std::mutex mutex_;
  std::string seen_;
  Reflector reflector_;
};

}  // namespace oarlock::kube
