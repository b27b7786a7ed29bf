# The trainer's image. Ordinary:  docker build -f docker/trainer.Dockerfile -t oarlock/trainer .
# With CUDA and NCCL:             docker build -f docker/trainer.Dockerfile -t oarlock/trainer:cuda --build-arg VARIANT=cuda .
# scripts/images passes what it has already: --build-context programs=DIR (it holds usr/bin), and
# --build-context libtorch=DIR (it holds torch/ and nvidia/, as a site-packages directory does).
ARG BASE=docker.io/library/debian:bookworm-slim
ARG VARIANT=cpu

FROM ${BASE} AS libtorch
ARG VARIANT
RUN apt-get update && apt-get install -y --no-install-recommends python3-pip
# The CPU variant needs two small wheels in addition to torch, since libtorch_cpu.so names their libraries. CUDA needs all that
# torch depends on, NCCL's headers among them, and the headers of scripts/lib/setup_cuda.sh.
RUN python3 -m pip install --no-cache-dir --target / --only-binary=:all: \
      torch==2.11.0 nvidia-cuda-runtime==13.0.96 nvidia-cuda-cupti==13.0.85 \
      $([ "$VARIANT" = cuda ] && echo nvidia-nccl-cu13==2.28.9 nvidia-cuda-crt==13.0.88 nvidia-cuda-cccl==13.0.85 || echo --no-deps)

FROM ${BASE} AS programs
ARG VARIANT
RUN apt-get update && apt-get install -y --no-install-recommends \
      build-essential cmake ninja-build pkg-config mold libssl-dev zlib1g-dev libexpected-dev nlohmann-json3-dev libfmt-dev \
      libspdlog-dev libcli11-dev libyaml-cpp-dev libxxhash-dev libhdf5-dev libblosc-dev libzstd-dev prometheus-cpp-dev libboost-dev libprotozero-dev libgloo-dev libgoogle-perftools-dev
COPY --from=libtorch /torch /libtorch/torch
COPY --from=libtorch /nvidia /libtorch/nvidia
COPY . /source
RUN cmake -S /source -B /build -G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_INSTALL_PREFIX=/usr \
      -DOARLOCK_TORCH_DIR=/libtorch/torch -DOARLOCK_CUDA_HEADERS=/libtorch \
      -DOARLOCK_CUDA=$([ "$VARIANT" = cuda ] && echo ON || echo OFF) \
      -DOARLOCK_OPERATOR=OFF -DOARLOCK_TESTS=OFF \
 && cmake --build /build && cmake --install /build --component trainer --strip && cmake --install /build --component cli --strip

FROM ${BASE}
ARG VARIANT
# One layer for all that seldom changes. The CPU variant takes the libraries that libtorch_cpu.so loads (five on amd64; on arm64
# also those of Arm's and NVIDIA's kernels), the other all but Python's. The trainer names libcudart itself, so that one must be
# found without LibTorch's search path.
# dataset-fashion-mnist is real data, so that the first job needs neither a volume nor a download. An MLflow server with https
# needs the authorities of ca-certificates.
RUN --mount=type=bind,from=libtorch,target=/wheels \
    apt-get update && apt-get install -y --no-install-recommends \
      libprometheus-cpp-core1.0 libssl3 libfmt9 libyaml-cpp0.7 libxxhash0 libhdf5-103-1 libblosc1 libzstd1 zlib1g libtcmalloc-minimal4 \
      ca-certificates dataset-fashion-mnist \
 && rm -rf /var/lib/apt/lists/* /var/cache/* /var/log/* \
 && mkdir -p /opt/libtorch && cd /wheels \
 && if [ "$VARIANT" = cuda ]; then cp --parents $(find torch/lib nvidia/*/lib -name '*.so*' ! -name libtorch_python.so) /opt/libtorch; \
    else cp --parents torch/lib/libtorch_cpu.so $(ldd torch/lib/libtorch_cpu.so | grep -o '/wheels/[^ ]*' | xargs realpath -s --relative-to=.) /opt/libtorch \
      && ! ldd /opt/libtorch/torch/lib/libtorch_cpu.so | grep 'not found'; fi \
 && printf '/opt/libtorch/%s\n' torch/lib nvidia/cu13/lib >/etc/ld.so.conf.d/libtorch.conf && ldconfig
COPY --from=programs /usr/bin/oarlock /usr/bin/oarlock-trainer /usr/bin/
ARG VERSION=unknown
ARG REVISION=unknown
LABEL org.opencontainers.image.title="oarlock-trainer" \
      org.opencontainers.image.description="LibTorch trainer, and the launcher of a node's ranks" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
USER 65532:65532
ENTRYPOINT ["/usr/bin/oarlock", "launch", "--"]
CMD ["oarlock-trainer"]
