#include "tests/bench/operator/purge.h"

#include <atomic>
#include <exception>
#include <mutex>
#include <stdexcept>
#include <thread>

namespace oarlock::bench {
namespace {

std::vector<std::string> names_in(Server& server, const std::string& list) {
  std::vector<std::string> names;
  const nlohmann::json page = server.get(list + "?limit=500");
  for (const nlohmann::json& item : page.at("items")) {
    names.push_back(item.at("metadata").at("name").get<std::string>());
  }
  return names;
}

void remove_all(Server& server, const std::string& list, const std::vector<std::string>& names, int concurrency) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr failure;
  const auto work = [&] {
    try {
      for (size_t i = next++; i < names.size(); i = next++) server.remove(list + "/" + names[i]);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (failure == nullptr) failure = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> workers;
    for (int i = 0; i < concurrency; ++i) workers.emplace_back(work);
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace

void purge(Server& server, const std::vector<std::string>& lists, int concurrency) {
  for (const std::string& list : lists) {
    for (int round = 0;; ++round) {
      const std::vector<std::string> names = names_in(server, list);
      if (names.empty()) break;
      if (round == kPurgeRounds) throw std::runtime_error(list + " does not become empty");
      remove_all(server, list, names, concurrency);
    }
  }
}

}  // namespace oarlock::bench
