// A proxy between an operator and a real kube-apiserver that does what networks, API servers and power cuts do: loses
// answers, freezes watches, shows the past, and says when to kill the operator. Plain HTTP on the operator's side.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "common/http/client/transport.h"
#include "tests/support/hostile_server.h"

namespace oarlock::test {

class FaultProxy {
 public:
  // What becomes of a write.
  enum class Fate {
    kPass,
    kLost,        // never reaches the API server; the connection drops
    kAnswerLost,  // is done; the connection drops instead of the answer
  };
  // Called for each write, Events left out, counted from 1. On the connection's thread.
  using Decide = std::function<Fate(int number, const HostileServer::Received& request)>;
  // Called after a write has been done and before its answer goes out.
  using Written = std::function<void(int number)>;

  // The transport must outlive it.
  explicit FaultProxy(kube::Transport& upstream);

  std::string url() const { return server_.url(); }
  void on_write(Decide decide, Written written);

  int writes() const;                              // so far, Events left out
  std::vector<std::string> written() const;        // "POST /api/v1/..." in order
  int questions(const std::string& target) const;  // GETs of this object so far

  // Watches of a resource ("pods"; "": all) give nothing until thaw(). What happened meanwhile comes then, or, with
  // `lose`, the streams end with 410 instead, so that a state is seen and not how it came about.
  void freeze(const std::string& resource);
  void thaw(bool lose);

  // From now on lists show the state of this resourceVersion and watches begin there; WatchList is refused. Until
  // present() is called watches give nothing.
  void show_the_past(const std::string& resource_version);
  void present();

  // As an API server from before WatchList (Kubernetes 1.32 and older).
  void refuse_watch_list();

  // The open watches of the resource get this line.
  void inject(const std::string& resource, const std::string& line);
  int watches(const std::string& resource) const;  // open now

 private:
  struct Watch {
    std::string resource;
    std::vector<std::string> injected;
    bool lose = false;
  };

  bool handle(HostileServer::Connection& connection, const HostileServer::Received& request);
  bool forward(HostileServer::Connection& connection, const kube::Request& request);
  bool watch(HostileServer::Connection& connection, const HostileServer::Received& request);
  bool frozen(const std::string& resource) const;  // with the lock held

  kube::Transport& upstream_;
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
