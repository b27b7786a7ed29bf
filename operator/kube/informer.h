// A reflector with a store behind it: the objects of a selection as structs of type T, and a call for each change.
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
#include "operator/kube/json_access.h"
#include "operator/kube/reflector.h"
#include "operator/kube/store.h"

namespace oarlock::kube {

template <typename T>
class Informer final : private ReflectorTarget, private ReflectorObserver {
 public:
  struct Hooks {
    // What is kept of an object. A failure, or an exception, is given to on_unreadable.
    std::function<Result<T>(const nlohmann::json& object)> project;
    // What stands for an object that cannot be read, made from ReflectorOptions::salvage's fields where the text cannot
    // be parsed. Without this hook the object stays as it was known before, or unknown.
    std::function<T(const nlohmann::json& object, const Error&)> stand_in{};
    typename Store<T>::IndexOf index_of;
    // Before the store changes: readers still find `before`. Whatever is derived from an object that is about to be
    // removed is therefore never missing. The arguments are those of on_change.
    std::function<void(const ObjectKey&, const T* before, const T* after)> before_change = [](const ObjectKey&,
                                                                                              const T*, const T*) {};
    // After the store has changed; null before: added, null after: deleted. On the informer's thread.
    std::function<void(const ObjectKey&, const T* before, const T* after)> on_change;
    std::function<void(const ObjectKey&, const Error&)> on_unreadable;  // the key may be empty
    std::function<void(const ApiError&)> on_problem;
    std::function<void(size_t objects)> on_synced;
    std::function<void()> on_watching = [] {};
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
    const nlohmann::json& metadata = member(object, "metadata");
    return {text_at(metadata, "namespace"), text_at(metadata, "name")};
  }

  using RecordPtr = typename Store<T>::RecordPtr;

  Result<T> project(const KeptObject& object) const {
    if (object.error) return tl::make_unexpected(*object.error);
    try {
      return hooks_.project(object.json);
    } catch (const std::exception& error) {  // the boundary of one object
      return oarlock::fail(ExitCode::kDataErr, error.what());
    }
  }

  // Null: unreadable.
  RecordPtr projected(const ObjectKey& key, std::string_view version, const KeptObject& object) {
    Result<T> value = project(object);
    if (value) return Store<T>::make_record(key, version, std::move(*value));
    hooks_.on_unreadable(key, value.error());
    if (!hooks_.stand_in) return nullptr;
    return Store<T>::make_record(key, version, hooks_.stand_in(object.json, value.error()));
  }

  // Every object of the API has a name; without one there is nothing to keep it under.
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

  void set_seen(const std::string& version) {
    if (version.empty()) return;
    const std::lock_guard lock(mutex_);
    seen_ = version;
  }

  void begin_replace() override { coming_.clear(); }
  void abandon_replace() override { typename Store<T>::Records().swap(coming_); }
  void replace_object(KeptObject object) override {
    const ObjectKey key = key_of(object.json);
    if (!has_name(key)) return;
    const std::string version = text_at(member(object.json, "metadata"), "resourceVersion");
    RecordPtr record = store_.record(key);
    // The same version is the same object: shared, so that a relist takes next to no memory.
    if (record == nullptr || version.empty() || record->key.version() != version) {
      if (RecordPtr fresh = projected(key, version, object)) record = std::move(fresh);
    }
    if (record == nullptr) return;
    coming_.erase(record);
    coming_.insert(std::move(record));
  }
  void replace_deleted(KeptObject object) override {
    if (const auto it = coming_.find(key_of(object.json)); it != coming_.end()) coming_.erase(it);
  }
  void commit_replace(const std::string& resource_version) override {
    const std::vector<Change> changes = store_.changes_to(coming_);
    for (const Change& change : changes) call(hooks_.before_change, change);
    store_.replace(std::exchange(coming_, {}), changes);
    set_seen(resource_version);
    for (const Change& change : changes) call(hooks_.on_change, change);
  }

  void change(ChangeType type, KeptObject object, const std::string& resource_version) override {
    const ObjectKey key = key_of(object.json);
    Change change;
    if (has_name(key)) {
      const bool is_deleted = type == ChangeType::kDeleted;
      if (!is_deleted) change.after = projected(key, resource_version, object);
      if (is_deleted || change.after != nullptr) {
        change.before = store_.record(key);  // only this thread writes the store
        call(hooks_.before_change, change);
        is_deleted ? store_.erase(key) : store_.put(change.after);
      }
    }
    set_seen(resource_version);
    call(hooks_.on_change, change);
  }
  void bookmark(const std::string& resource_version) override { set_seen(resource_version); }

  void on_problem(const ApiError& error) override { hooks_.on_problem(error); }
  void on_watching() override { hooks_.on_watching(); }
  void on_skipped(const Error& error) override { hooks_.on_unreadable({}, error); }
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
