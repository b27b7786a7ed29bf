# scripts/setup fuzz: the compiler of the fuzzers, its runtime, and its symbolizer.
apt_install clang-19 libclang-rt-19-dev llvm-19
