// A reflector that keeps its objects in a store: the objects of a selection as structs of type T, with hooks for each
// change.
#pragma once

#include <atomic>
#include <exception>
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
#include "common/json_access.h"
#include "operator/kube/client/reflector.h"
#include "operator/kube/client/store.h"

namespace oarlock::kube {

template <typename T>
class Informer final : private ReflectorTarget, private ReflectorObserver {
 public:
  struct Hooks {
    // Converts an object to the struct that the store keeps. An error, or an exception, is passed to on_unreadable.
    std::function<Result<T>(const nlohmann::json& object)> project;
    // Makes a placeholder for an object that cannot be converted. If the text cannot be parsed, `object` has the fields
    // of ReflectorOptions::salvage. Without this hook, the store keeps the previous state of the object, if any.
    std::function<T(const nlohmann::json& object, const Error&)> placeholder{};
    typename Store<T>::IndexOf index_of;
    // Called before the store changes, with the arguments of on_change. Readers still find `before`, so that data
    // derived from an object that is about to be removed is never missing.
    std::function<void(const ObjectKey&, const T* before, const T* after)> before_change = [](const ObjectKey&,
                                                                                              const T*, const T*) {};
    // Called after the store has changed. A null `before` means that the object was added, a null `after` that it was
    // deleted.
    std::function<void(const ObjectKey&, const T* before, const T* after)> on_change;
    std::function<void(const ObjectKey&, const Error&)> on_unreadable;  // the key may be empty
    std::function<void(const ApiError&)> on_problem;
    std::function<void(size_t objects)> on_synced;
    std::function<void()> on_watching = [] {};
  };

  // All hooks are called on the thread of run(). `options.fields` selects the fields that `project` reads; those of the
  // key and the resource version are added.
  Informer(ReflectorOptions options, Hooks hooks, std::shared_ptr<Transport> transport,
           std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper, Random random)
      : hooks_(std::move(hooks)),
        store_(hooks_.index_of),
        reflector_(with_key_fields(std::move(options)), std::move(transport), *this, *this, std::move(clock),
                   std::move(sleeper), std::move(random)) {}

  // Blocks until a stop is requested.
  void run(const std::stop_token& stop) { reflector_.run(stop); }

  const Store<T>& store() const { return store_; }
  bool synced() const { return synced_; }

  // Whether the store reflects all changes up to this resource version. Thread-safe.
  bool has_seen(const std::string& resource_version) const {
    const std::lock_guard lock(mutex_);
    return compare_resource_versions(last_version_, resource_version) >= 0;
  }

 private:
  static ReflectorOptions with_key_fields(ReflectorOptions options) {
    options.fields = options.fields.with({"metadata.namespace", "metadata.name"});
    return options;
  }

  static ObjectKey key_of(const nlohmann::json& object) {
    const nlohmann::json& metadata = member(object, "metadata");
    return {text_at(metadata, "namespace"), text_at(metadata, "name")};
  }

  using RecordPtr = typename Store<T>::RecordPtr;

  Result<T> project(const FilteredObject& object) const {
    if (object.error) return tl::make_unexpected(*object.error);
    try {
      return hooks_.project(object.json);
    } catch (const std::exception& error) {  // an exception affects only this object
      return oarlock::fail(ExitCode::kDataErr, error.what());
    }
  }

  // Returns null if the object cannot be converted.
  RecordPtr make_record(const ObjectKey& key, std::string_view version, const FilteredObject& object) {
    Result<T> value = project(object);
    if (value) return Store<T>::make_record(key, version, std::move(*value));
    hooks_.on_unreadable(key, value.error());
    if (!hooks_.placeholder) return nullptr;
    return Store<T>::make_record(key, version, hooks_.placeholder(object.json, value.error()));
  }

  // Every object of the API has a name; an object without one cannot be stored.
  bool has_name(const ObjectKey& key) const {
    if (key.name.empty()) hooks_.on_unreadable(key, {ExitCode::kDataErr, "the object has no name"});
    return !key.name.empty();
  }

  using Change = typename Store<T>::Change;
  using ChangeHook = std::function<void(const ObjectKey&, const T* before, const T* after)>;

  static void call(const ChangeHook& hook, const Change& change) {
    const auto object = [](const RecordPtr& record) { return record == nullptr ? nullptr : &record->object; };
    const RecordPtr& known = change.after != nullptr ? change.after : change.before;
    if (known != nullptr) hook(known->key.key(), object(change.before), object(change.after));
  }

  void set_last_version(const std::string& version) {
    if (version.empty()) return;
    const std::lock_guard lock(mutex_);
    last_version_ = version;
  }

  void begin_replace() override { pending_.clear(); }
  void abandon_replace() override { typename Store<T>::Records().swap(pending_); }
  void replace_object(FilteredObject object) override {
    const ObjectKey key = key_of(object.json);
    if (!has_name(key)) return;
    const std::string version = text_at(member(object.json, "metadata"), "resourceVersion");
    RecordPtr record = store_.record(key);
    // An object with the same version has not changed. It is shared, so that a relist needs almost no memory.
    if (record == nullptr || version.empty() || record->key.version() != version) {
      if (RecordPtr fresh = make_record(key, version, object)) record = std::move(fresh);
    }
    if (record == nullptr) return;
    pending_.erase(record);
    pending_.insert(std::move(record));
  }
  void replace_deleted(FilteredObject object) override {
    if (const auto it = pending_.find(key_of(object.json)); it != pending_.end()) pending_.erase(it);
  }
  void commit_replace(const std::string& resource_version) override {
    const std::vector<Change> changes = store_.changes_to(pending_);
    for (const Change& change : changes) call(hooks_.before_change, change);
    store_.replace(std::exchange(pending_, {}), changes);
    set_last_version(resource_version);
    for (const Change& change : changes) call(hooks_.on_change, change);
  }

  void change(ChangeType type, FilteredObject object, const std::string& resource_version) override {
    const ObjectKey key = key_of(object.json);
    Change change;
    if (has_name(key)) {
      const bool is_deleted = type == ChangeType::kDeleted;
      if (!is_deleted) change.after = make_record(key, resource_version, object);
      if (is_deleted || change.after != nullptr) {
        change.before = store_.record(key);  // only this thread writes to the store
        call(hooks_.before_change, change);
        is_deleted ? store_.erase(key) : store_.put(change.after);
      }
    }
    set_last_version(resource_version);
    call(hooks_.on_change, change);
  }
  void bookmark(const std::string& resource_version) override { set_last_version(resource_version); }

  void on_problem(const ApiError& error) override { hooks_.on_problem(error); }
  void on_watching() override { hooks_.on_watching(); }
  void on_skipped(const Error& error) override { hooks_.on_unreadable({}, error); }
  void on_synced() override {
    synced_ = true;
    hooks_.on_synced(store_.size());
  }

  const Hooks hooks_;
  Store<T> store_;
  typename Store<T>::Records pending_;
  std::atomic<bool> synced_ = false;
  mutable std::mutex mutex_;
  std::string last_version_;
  Reflector reflector_;
};

}  // namespace oarlock::kube
