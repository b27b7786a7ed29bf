# An overlay port: it builds the checkout that contains it.
vcpkg_check_linkage(ONLY_STATIC_LIBRARY)
if(NOT DEFINED ENV{OARLOCK_TORCH_DIR})
  message(FATAL_ERROR "Set OARLOCK_TORCH_DIR to the directory torch of LibTorch, and VCPKG_KEEP_ENV_VARS=OARLOCK_TORCH_DIR")
endif()
set(VCPKG_BUILD_TYPE release) # there is one build of LibTorch
vcpkg_find_acquire_program(PKGCONFIG)

vcpkg_cmake_configure(
  SOURCE_PATH "${CURRENT_PORT_DIR}/../../.."
  OPTIONS
    -DOARLOCK_ONLY_DDP=ON
    "-DOARLOCK_TORCH_DIR=$ENV{OARLOCK_TORCH_DIR}"
    "-DPKG_CONFIG_EXECUTABLE=${PKGCONFIG}")
vcpkg_cmake_install()
vcpkg_cmake_config_fixup(PACKAGE_NAME oarlock CONFIG_PATH lib/cmake/oarlock)
vcpkg_fixup_pkgconfig()
vcpkg_install_copyright(FILE_LIST "${CURRENT_PORT_DIR}/../../../LICENSE")
