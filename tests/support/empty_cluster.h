// A simulated API server without objects, for tests with servers that are absent, empty or broken.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>

#include "tests/support/hostile_server.h"

namespace oarlock::test {

// The head of a watch, and for a WatchList the end of the (empty) list.
inline void begin_watch(HostileServer::Connection& connection, const HostileServer::Received& request) {
  connection.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
  if (request.target.find("sendInitialEvents") == std::string::npos) return;
  const std::string end =
      R"({"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"1","annotations":{"k8s.io/initial-events-end":"true"}}}})"
      "\n";
  connection.write(fmt::format("{:x}\r\n{}\r\n", end.size(), end));
}

// Lists are empty and watches stay open. Without the CRD, requests for jobs get 404. There are no gang schedulers.
inline HostileServer::Handler empty_cluster(const std::atomic<bool>& has_crd) {
  return [&has_crd](HostileServer::Connection& connection, const HostileServer::Received& request) {
    const bool is_of_job = request.target.find("trainingjobs") != std::string::npos;
    if ((is_of_job && !has_crd) || request.target.find("podgroups") != std::string::npos) {
      connection.answer(404, "404 page not found");
    } else if (request.target.find("watch=true") != std::string::npos) {
      begin_watch(connection, request);
      connection.wait_for_close();
      return false;
    } else {
      connection.answer(200, R"({"kind":"List","metadata":{"resourceVersion":"1"},"items":[]})");
    }
    return true;
  };
}

// A kubeconfig without a user. `authority`: file of the authority to trust, in the same directory; empty: none. Returns
// its path.
inline std::string write_kubeconfig(const std::filesystem::path& directory, const std::string& server,
                                    const std::string& authority = "") {
  const std::string path = (directory / "kubeconfig").string();
  std::ofstream(path)
      << "current-context: x\ncontexts: [{name: x, context: {cluster: c}}]\nclusters: [{name: c, cluster: "
      << "{server: '" << server << "'" << (authority.empty() ? "" : ", certificate-authority: '" + authority + "'")
      << "}}]\n";
  return path;
}

}  // namespace oarlock::test
