// Ranks can ask each other what they are doing, beside the process group: when a collective fails, the ranks that did
// not arrive are named. Nothing is sent while all goes well. A rank answers on a thread of its own, on a port of its
// own, so the channel does not depend on rank 0 or on its store. LibTorch-free.
//
// The protocol: a connection per question, one line each way. "?" -> {"phase", "step", "collective"};
// "!<text>" -> nothing: the text is the last word of a rank that ends.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "common/error.h"
#include "trainer/distributed/diagnosis.h"
#include "trainer/distributed/socket.h"

namespace oarlock {

struct PeerAddress {
  std::string host;  // numeric
  int port = 0;
};

class PeerWatch {
 public:
  // Called on the thread that answers.
  using ActivitySource = std::function<Activity()>;

  // Answers from now on. kUnavailable when no port can be had.
  static Result<std::unique_ptr<PeerWatch>> start(int rank, ActivitySource activity);
  ~PeerWatch();
  PeerWatch(const PeerWatch&) = delete;
  PeerWatch& operator=(const PeerWatch&) = delete;

  int port() const { return port_; }

  // By rank, this one's included. Before tell() and explain(), which do nothing useful without.
  void set_peers(std::vector<PeerAddress> peers) { peers_ = std::move(peers); }

  // Asks all and says who kept a collective from ending; tells them, too. Takes as long as `patience` when one is
  // silent, else some milliseconds. What a peer told before it ended comes first: it knows better.
  std::string explain(std::chrono::milliseconds patience);

  // The last word of this rank, so that the others can say why it is gone. Best effort, at most `patience`.
  void tell(const std::string& message, std::chrono::milliseconds patience) const;

 private:
  PeerWatch(int rank, ActivitySource activity, Listener listener);
  void serve();
  void answer(const FileDescriptor& connection);

  int rank_;
  ActivitySource activity_;
  FileDescriptor listener_;
  FileDescriptor wake_;  // readable: the end
  int port_;
  std::vector<PeerAddress> peers_;
  std::mutex mutex_;
  std::optional<std::string> told_;  // the first last word of another rank
  std::thread thread_;
};

}  // namespace oarlock
