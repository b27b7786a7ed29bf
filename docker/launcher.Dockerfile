# The launcher's image: the statically linked command line, which an init container copies into pods of any image.
#   docker build -f docker/launcher.Dockerfile -t oarlock/launcher .
# scripts/images passes the directory of programs that are built already: --build-context programs=DIR (it holds usr/bin).
ARG BASE=docker.io/library/debian:bookworm-slim

FROM ${BASE} AS programs
RUN apt-get update && apt-get install -y --no-install-recommends \
      build-essential cmake ninja-build pkg-config libssl-dev zlib1g-dev libexpected-dev nlohmann-json3-dev libfmt-dev \
      libspdlog-dev libcli11-dev libyaml-cpp-dev libxxhash-dev libboost-dev prometheus-cpp-dev
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
      -DOARLOCK_TRAINER=OFF -DOARLOCK_OPERATOR=OFF -DOARLOCK_TESTS=OFF -DOARLOCK_STATIC_LIBRARIES=ON \
 && cmake --build /build --target oarlock-launcher && cmake --install /build --component launcher --strip

FROM scratch
COPY --from=programs /usr/bin/oarlock /oarlock
# The packages of the libraries that the program contains, where scanners look.
COPY --from=programs /usr/share/oarlock/oarlock-launcher.packages /var/lib/dpkg/status
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="oarlock-launcher" \
      org.opencontainers.image.description="Launcher of a node's ranks, for pods of any image" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
ENTRYPOINT ["/oarlock"]
