// A proxy between an operator and a real kube-apiserver that injects faults: lost requests and responses, frozen
// watches, stale lists, and hooks at which a test kills the operator. It serves plain HTTP to the operator.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "http/client/transport.h"
#include "tests/support/hostile_server.h"

namespace oarlock::test {

class FaultProxy {
 public:
  // The treatment of a write.
  enum class Fate {
    kPass,
    kLost,        // the request does not reach the API server; the connection is closed
    kAnswerLost,  // the API server performs the write; the connection is closed without a response
  };
  // Called on the connection's thread for each write except those of Events. `number` counts them from 1.
  using Decide = std::function<Fate(int number, const HostileServer::Received& request)>;
  // Called after the API server has performed a write, and before the response is sent.
  using Written = std::function<void(int number)>;

  // `upstream` must outlive the proxy.
  explicit FaultProxy(http::Transport& upstream);

  std::string url() const { return server_.url(); }
  void on_write(Decide decide, Written written);

  int writes() const;                              // number of writes, without those of Events
  std::vector<std::string> written() const;        // "POST /api/v1/..." in order
  int questions(const std::string& target) const;  // number of GET requests for this object

  // Watches of a resource ("pods"; "": all) deliver nothing until thaw(), which delivers the delayed events. With
  // `lose`, the streams end with 410 instead, so that the client lists the final state and misses the events.
  void freeze(const std::string& resource);
  void thaw(bool lose);

  // From now on lists return the state at this resourceVersion, watches begin there and deliver nothing, and WatchList
  // is rejected, until present() is called.
  void show_the_past(const std::string& resource_version);
  void present();

  // Rejects WatchList, as Kubernetes 1.32 and older do.
  void refuse_watch_list();

  // Adds this line to the open watches of the resource.
  void inject(const std::string& resource, const std::string& line);
  int watches(const std::string& resource) const;  // open now

 private:
  struct Watch {
    std::string resource;
    std::vector<std::string> injected;
    bool lose = false;
  };

  bool handle(HostileServer::Connection& connection, const HostileServer::Received& request);
  bool forward(HostileServer::Connection& connection, const http::Request& request);
  bool is_served(const std::string& target);
  bool watch(HostileServer::Connection& connection, const HostileServer::Received& request);
  bool frozen(const std::string& resource) const;  // with the lock held

  http::Transport& upstream_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Decide decide_;
  Written written_hook_;
  std::vector<std::string> written_;
  std::map<std::string, int> questions_;
  std::optional<std::string> frozen_;
  std::string past_;
  bool past_frozen_ = false;
  bool refuses_watch_list_ = false;
  std::vector<Watch*> watches_;
  HostileServer server_;  // last: its threads use the others
};

}  // namespace oarlock::test
