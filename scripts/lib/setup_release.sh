# shellcheck shell=bash
# scripts/setup release: what scripts/release needs to build and pack the command line.
apt_install build-essential cmake ninja-build ccache mold pkg-config ca-certificates git jq python3 python3-yaml \
  libssl-dev zlib1g-dev libexpected-dev nlohmann-json3-dev libfmt-dev libspdlog-dev libcli11-dev libyaml-cpp-dev libxxhash-dev \
  libboost-dev prometheus-cpp-dev
