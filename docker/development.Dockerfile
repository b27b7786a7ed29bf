# The image in which tasks outside of this repository are built: the compiler, LibTorch, and Oarlock's headers and libraries.
#   docker build -f docker/development.Dockerfile -t oarlock/development .
#   docker build -f docker/development.Dockerfile -t oarlock/development:cuda --build-arg VARIANT=cuda .
# Programs that are built in it run in the trainer's image of the same version and variant.
ARG BASE=docker.io/library/debian:bookworm-slim
ARG VARIANT=cpu

FROM ${BASE} AS libtorch
ARG VARIANT
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip
RUN python3 -m pip install --no-cache-dir --target / --only-binary=:all: \
      torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 \
      $([ "$VARIANT" = cuda ] && echo nvidia-nccl-cu13==2.28.9 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 || echo --no-deps)

FROM ${BASE} AS compiler
RUN apt-get update && apt-get install -y --no-install-recommends \
      build-essential cmake ninja-build pkg-config mold libssl-dev zlib1g-dev libexpected-dev nlohmann-json3-dev libfmt-dev \
      libspdlog-dev libcli11-dev libyaml-cpp-dev libxxhash-dev libhdf5-dev libblosc-dev libzstd-dev prometheus-cpp-dev libboost-dev libprotozero-dev libgloo-dev libgoogle-perftools-dev \
 && rm -rf /var/lib/apt/lists/*
COPY --from=libtorch /torch /libtorch/torch
COPY --from=libtorch /nvidia /libtorch/nvidia
RUN printf '/libtorch/%s\n' torch/lib nvidia/cu13/lib >/etc/ld.so.conf.d/libtorch.conf && ldconfig

FROM compiler AS programs
ARG VARIANT
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release \
      -DOARLOCK_TORCH_DIR=/libtorch/torch -DOARLOCK_CUDA_HEADERS=/libtorch \
      -DOARLOCK_CUDA=$([ "$VARIANT" = cuda ] && echo ON || echo OFF) \
      -DOARLOCK_OPERATOR=OFF -DOARLOCK_TESTS=OFF \
 && cmake --build /build && cmake --install /build --component development --prefix /opt/oarlock \
 && cmake --install /build --component trainer --strip --prefix /usr && cmake --install /build --component cli --strip --prefix /usr

FROM compiler
COPY --from=programs /opt/oarlock /opt/oarlock
COPY --from=programs /usr/bin/oarlock /usr/bin/oarlock-trainer /usr/bin/
ENV CMAKE_PREFIX_PATH=/opt/oarlock
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="oarlock-development" \
      org.opencontainers.image.description="Compiler, LibTorch and Oarlock's libraries, for tasks of your own" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
WORKDIR /task
