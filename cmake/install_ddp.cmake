# Installs the component "ddp": the library for any program with LibTorch, find_package(oarlock COMPONENTS ddp) and the target
# oarlock::ddp (examples/ddp). The installed tree is relocatable.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/oarlock)
set(_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/oarlock)

# oarlock_install_headers(COMPONENT HEADER...) installs headers under their paths in the checkout. Programs and other headers
# include them as <oarlock/common/error.h>.
function(oarlock_install_headers component)
  install(CODE "set(headers \"${ARGN}\")
    set(source \"${PROJECT_SOURCE_DIR}\")
    set(stage \"${PROJECT_BINARY_DIR}/installed_headers\")
    set(destination \"${_include_dir}\")
    include(\"${PROJECT_SOURCE_DIR}/cmake/install_headers.cmake\")" COMPONENT ${component})
endfunction()

# The library for any program.
foreach(library base regroup ddp_settings ddp)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock_ddp COMPONENT ddp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
set_target_properties(oarlock_ddp_c PROPERTIES EXPORT_NAME ddp_c)
install(TARGETS oarlock_ddp_c EXPORT oarlock_ddp COMPONENT ddp LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(FILES ${PROJECT_SOURCE_DIR}/ddp/oarlock_ddp.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT ddp)
install(EXPORT oarlock_ddp NAMESPACE oarlock:: FILE oarlockDdpTargets.cmake DESTINATION ${_package_dir} COMPONENT ddp)
# Its public headers, and those that they include. Programs include <oarlock/ddp.h>.
set(_ddp_headers
  common/clock.h
  common/error.h
  common/files.h
  common/log_field.h
  common/port_socket.h
  common/stop_flag.h
  ddp/agreement.h
  ddp/agreement_json.h
  ddp/batch_norm.h
  ddp/buffer_rollback.h
  ddp/checkpoint.h
  ddp/clip_grad.h
  ddp/comm_hook_function.h
  ddp/ddp.h
  ddp/ddp_mpi.h
  ddp/digest_file.h
  ddp/distributed_data_parallel.h
  ddp/distributed_data_parallel_base.h
  ddp/distributed_sampler.h
  ddp/environment_variables.h
  ddp/grad_scaler.h
  ddp/group_membership.h
  ddp/init_distributed.h
  ddp/init_process_group.h
  ddp/library_errors.h
  ddp/named_tensors.h
  ddp/options.h
  ddp/peer_monitor.h
  ddp/process_group.h
  ddp/rank_environment.h
  ddp/recoverable_loop.h
  ddp/reduction_state.h
  ddp/rendezvous.h
  ddp/safetensors.h
  ddp/script_model.h
  ddp/seed_step.h
  ddp/sync_batchnorm.h
  ddp/tensor_map.h
  ddp/watchdog.h
  recovery/regroup.h)
oarlock_install_headers(ddp ${_ddp_headers})
install(FILES ${PROJECT_BINARY_DIR}/installed_headers/ddp/ddp.h ${PROJECT_BINARY_DIR}/installed_headers/ddp/ddp_mpi.h DESTINATION ${_include_dir} COMPONENT ddp)

write_basic_package_version_file(${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/oarlockConfig.cmake.in ${PROJECT_BINARY_DIR}/oarlockConfig.cmake
  INSTALL_DESTINATION ${_package_dir})
install(FILES ${PROJECT_BINARY_DIR}/oarlockConfig.cmake ${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${PROJECT_SOURCE_DIR}/cmake/cuda.cmake DESTINATION ${_package_dir} COMPONENT ddp)

# For programs that are not built with CMake. `pkg-config --define-variable=torch_dir=DIR` selects another LibTorch.
cmake_path(SET _prefix NORMALIZE "/${CMAKE_INSTALL_LIBDIR}/pkgconfig")
cmake_path(RELATIVE_PATH _prefix BASE_DIRECTORY / OUTPUT_VARIABLE _depth)
string(REGEX REPLACE "[^/]+" ".." _to_prefix "${_depth}")
set(_cuda_libraries "")
if(OARLOCK_CUDA)
  set(_cuda_libraries "-ltorch_cuda -lc10_cuda")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/oarlock-ddp.pc.in ${PROJECT_BINARY_DIR}/oarlock-ddp.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/oarlock-ddp.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT ddp)
