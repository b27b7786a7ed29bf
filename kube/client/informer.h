// A reflector that keeps its objects in a store: the objects of a selection as structs of type T, with hooks for each
// change.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/error.h"
#include "common/json_access.h"
#include "common/text.h"
#include "kube/client/memory_shares.h"
#include "kube/client/reflector.h"
#include "kube/client/request.h"
#include "kube/client/store.h"

namespace oarlock::kube {

// The objects of one selection.
//
// ReflectorOptions::max_bytes bounds the memory of the objects. When they exceed it, the informer drops objects of the
// namespaces that take the most memory, in the order of Hooks::drop_order, until a sixteenth of the limit is free; the
// objects of the other namespaces are kept. A namespace with dropped objects is incomplete until a list has kept all of
// its objects. While a namespace is incomplete, a list follows the end of each watch, after five to ten minutes.
template <typename T>
class Informer final : private ReflectorTarget, private ReflectorObserver {
 public:
  // A list fails if it would make more namespaces incomplete, because only a faulty API server can cause that.
  static constexpr size_t kMaxIncompleteNamespaces = 1000;

  struct Hooks {
    // Converts an object to the struct that the store keeps. An error, or an exception, is passed to on_unreadable.
    std::function<Result<T>(const nlohmann::json& object)> project;
    // Makes a placeholder for an object that cannot be converted. If the text cannot be parsed, `object` has the fields
    // of ReflectorOptions::salvage. Without this hook, the store keeps the previous state of the object, if any.
    std::function<T(const nlohmann::json& object, const Error&)> placeholder{};
    typename Store<T>::IndexOf index_of;
    // Returns the memory that a struct takes, for ReflectorOptions::max_bytes.
    std::function<size_t(const T&)> bytes_of = [](const T&) { return sizeof(T); };
    // Objects with smaller values are dropped first when the limit is exceeded.
    std::function<DropOrder(const T&)> drop_order = [](const T&) { return DropOrder{}; };
    // The incomplete namespaces have changed, or a list has found them incomplete again. May be called with an empty
    // set.
    std::function<void(const std::set<std::string>& namespaces)> on_incomplete = [](const std::set<std::string>&) {};
    // Called before the store changes, with the arguments of on_change. Readers still find `before`, so that data
    // derived from an object that is about to be removed is never missing.
    std::function<void(const ObjectKey&, const T* before, const T* after)> before_change = [](const ObjectKey&,
                                                                                              const T*, const T*) {};
    // Called after the store has changed. A null `before` means that the object was added, a null `after` that it was
    // deleted.
    std::function<void(const ObjectKey&, const T* before, const T* after)> on_change;
    std::function<void(const ObjectKey&, const Error&)> on_unreadable;  // the key may be empty
    std::function<void(const ApiError&)> on_problem;
    std::function<void()> on_listing = [] {};  // a list begins, which on_synced or on_problem ends
    std::function<void(size_t objects)> on_synced;
    std::function<void()> on_watching = [] {};
  };

  // All hooks are called on the thread of run(). `options.fields` selects the fields that `project` reads; those of the
  // key and the resource version are added.
  Informer(ReflectorOptions options, Hooks hooks, std::shared_ptr<http::Transport> transport,
           std::shared_ptr<const Clock> clock, std::shared_ptr<Sleeper> sleeper, Random random)
      : hooks_(std::move(hooks)),
        max_objects_(options.max_objects),
        max_bytes_(options.max_bytes),
        store_(hooks_.index_of),
        reflector_(with_key_fields(std::move(options)), std::move(transport), *this, *this, std::move(clock),
                   std::move(sleeper), std::move(random)) {}

  // Blocks until a stop is requested.
  void run(const std::stop_token& stop) { reflector_.run(stop); }

  const Store<T>& store() const { return store_; }
  bool synced() const { return synced_; }

  // Whether objects of this namespace were dropped. Thread-safe.
  bool is_incomplete(const std::string& namespace_name) const {
    const std::lock_guard lock(mutex_);
    return incomplete_.contains(namespace_name);
  }

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
    if (!value) {
      hooks_.on_unreadable(key, value.error());
      if (!hooks_.placeholder) return nullptr;
      value = hooks_.placeholder(object.json, value.error());
    }
    const size_t bytes = hooks_.bytes_of(*value);
    return Store<T>::make_record(key, version, std::move(*value), bytes);
  }

  // Every object of the API has a name, and the API server bounds its identity. An object that violates this is not
  // stored.
  bool is_storable(const ObjectKey& key, const nlohmann::json& object) const {
    if (key.name.empty()) {
      hooks_.on_unreadable(key, {ExitCode::kDataErr, "the object has no name"});
      return false;
    }
    static constexpr std::pair<const char*, size_t> kLimits[] = {
        {"name", 253}, {"namespace", 63}, {"uid", 128}, {"resourceVersion", kMaxVersionBytes}};
    const nlohmann::json& metadata = member(object, "metadata");
    for (const auto& [field, limit] : kLimits) {
      const nlohmann::json& value = member(metadata, field);
      if (!value.is_string() || value.template get_ref<const std::string&>().size() <= limit) continue;
      hooks_.on_unreadable({shortened(key.namespace_name), shortened(key.name)},
                           {ExitCode::kDataErr, fmt::format("metadata.{} is longer than {} bytes", field, limit)});
      return false;
    }
    return true;
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

  void add_pending(RecordPtr record) {
    remove_pending(pending_.find(record));
    pending_bytes_ += record->bytes;
    pending_.insert(std::move(record));
    if (pending_bytes_ <= max_bytes_) return;
    for (const RecordPtr& excess : excess_of(pending_, pending_bytes_)) {
      remove_pending(pending_.find(excess));
      pending_incomplete_.emplace(excess->key.namespace_name());
    }
  }
  void remove_pending(typename Store<T>::Records::iterator it) {
    if (it == pending_.end()) return;
    pending_bytes_ -= (*it)->bytes;
    pending_.erase(it);
  }

  // Returns the records to drop, so that the others take less than the limit.
  std::vector<RecordPtr> excess_of(const typename Store<T>::Records& records, size_t bytes) const {
    std::vector<MemoryShare> shares;
    std::vector<const RecordPtr*> pointers;
    for (const RecordPtr& record : records) {
      shares.push_back(
          {record->key.namespace_name(), record->bytes, hooks_.drop_order(record->object), pointers.size()});
      pointers.push_back(&record);
    }
    std::vector<RecordPtr> excess;
    for (const size_t index : choose_excess(std::move(shares), bytes - (max_bytes_ - max_bytes_ / 16)))
      excess.push_back(*pointers[index]);
    return excess;
  }

  // Drops objects of the store if it exceeds the limit.
  void drop_excess() {
    if (store_.bytes() <= max_bytes_) return;
    const std::vector<RecordPtr> excess = excess_of(store_.records(), store_.bytes());
    std::set<std::string> namespaces = incomplete_;  // only this thread writes to it
    for (const RecordPtr& record : excess) namespaces.emplace(record->key.namespace_name());
    set_incomplete(std::move(namespaces));
    for (const RecordPtr& record : excess) {
      store_.erase(record->key.key());
      call(hooks_.on_change, {.before = record, .after = nullptr});
    }
  }

  void set_incomplete(std::set<std::string> namespaces) {
    {
      const std::lock_guard lock(mutex_);
      std::swap(incomplete_, namespaces);
    }
    if (incomplete_ != namespaces) hooks_.on_incomplete(incomplete_);
  }

  void begin_replace() override {
    pending_.clear();
    pending_bytes_ = 0;
    pending_incomplete_.clear();
    is_replacing_ = true;
    hooks_.on_listing();
  }
  void abandon_replace() override {
    typename Store<T>::Records().swap(pending_);
    pending_bytes_ = 0;
    pending_incomplete_.clear();
    is_replacing_ = false;
  }
  void replace_object(FilteredObject object) override {
    const ObjectKey key = key_of(object.json);
    if (!is_storable(key, object.json)) return;
    const std::string version = text_at(member(object.json, "metadata"), "resourceVersion");
    RecordPtr record = store_.record(key);
    // An object with the same version has not changed. It is shared, so that a relist needs almost no memory.
    if (record == nullptr || version.empty() || record->key.version() != version) {
      if (RecordPtr fresh = make_record(key, version, object)) record = std::move(fresh);
    }
    if (record != nullptr) add_pending(std::move(record));
  }
  void replace_deleted(FilteredObject object) override { remove_pending(pending_.find(key_of(object.json))); }
  void commit_replace(const std::string& resource_version) override {
    is_replacing_ = false;
    const std::vector<Change> changes = store_.changes_to(pending_);
    for (const Change& change : changes) call(hooks_.before_change, change);
    store_.replace(std::exchange(pending_, {}), changes);
    has_changed_ = !changes.empty();
    pending_bytes_ = 0;
    const bool is_still_incomplete = !incomplete_.empty() && incomplete_ == pending_incomplete_;
    set_incomplete(std::exchange(pending_incomplete_, {}));
    if (is_still_incomplete) hooks_.on_incomplete(incomplete_);
    set_last_version(resource_version);
    for (const Change& change : changes) call(hooks_.on_change, change);
  }

  void change(ChangeType type, FilteredObject object, const std::string& resource_version) override {
    const ObjectKey key = key_of(object.json);
    Change change;
    if (is_storable(key, object.json)) {
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
    drop_excess();
  }
  void bookmark(const std::string& resource_version) override { set_last_version(resource_version); }
  // Until a replacement is committed, the store keeps the previous objects, which are not counted, because they may
  // exceed the limit themselves.
  std::optional<std::string> exceeded_limit() const override {
    const size_t objects = is_replacing_ ? pending_.size() : store_.size();
    if (objects > max_objects_) return "the server sent more than " + counted(max_objects_, "object");
    const size_t namespaces = is_replacing_ ? pending_incomplete_.size() : incomplete_.size();
    if (namespaces <= kMaxIncompleteNamespaces) return std::nullopt;
    return fmt::format("the objects take more than {} of memory, in more than {} namespaces",
                       size_text(static_cast<double>(max_bytes_)), kMaxIncompleteNamespaces);
  }
  bool needs_relist() const override { return !incomplete_.empty(); }
  bool has_changed() const override { return has_changed_; }

  void on_problem(const ApiError& error) override { hooks_.on_problem(error); }
  void on_watching() override { hooks_.on_watching(); }
  void on_skipped(const Error& error) override { hooks_.on_unreadable({}, error); }
  void on_synced() override {
    synced_ = true;
    hooks_.on_synced(store_.size());
  }

  const Hooks hooks_;
  const size_t max_objects_;
  const size_t max_bytes_;
  Store<T> store_;
  typename Store<T>::Records pending_;
  size_t pending_bytes_ = 0;
  bool is_replacing_ = false;
  bool has_changed_ = false;
  std::atomic<bool> synced_ = false;
  std::set<std::string> pending_incomplete_;
  mutable std::mutex mutex_;
  std::string last_version_;
  std::set<std::string> incomplete_;
  Reflector reflector_;
};

}  // namespace oarlock::kube
