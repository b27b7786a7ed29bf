# Installs two components. "ddp" is the library for any program with LibTorch: find_package(oarlock COMPONENTS ddp) and the target
# oarlock::ddp (examples/ddp). "development" contains it, and the engine for tasks out of tree: find_package(oarlock) and
# the target oarlock::engine (examples/own-task). The installed tree is relocatable.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/oarlock)
set(_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/oarlock)

# oarlock_install_headers(COMPONENT HEADER...) installs headers under their paths in the checkout.
function(oarlock_install_headers component)
  foreach(header IN LISTS ARGN)
    cmake_path(GET header PARENT_PATH directory)
    install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${_include_dir}/${directory} COMPONENT ${component})
  endforeach()
endfunction()

# The library for any program.
foreach(library base ddp_settings ddp)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock_ddp COMPONENT ddp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${_include_dir} ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
set_target_properties(oarlock_ddp_c PROPERTIES EXPORT_NAME ddp_c)
install(TARGETS oarlock_ddp_c EXPORT oarlock_ddp COMPONENT ddp LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
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
  ddp/ddp.h
  ddp/ddp_mpi.h
  ddp/distributed_data_parallel.h
  ddp/distributed_data_parallel_base.h
  ddp/distributed_sampler.h
  ddp/environment_variables.h
  ddp/init_distributed.h
  ddp/init_process_group.h
  ddp/library_errors.h
  ddp/named_tensors.h
  ddp/options.h
  ddp/peer_monitor.h
  ddp/process_group.h
  ddp/rank_environment.h
  ddp/reduction_state.h
  ddp/rendezvous.h
  ddp/script_model.h
  ddp/sync_batchnorm.h
  ddp/watchdog.h)
oarlock_install_headers(ddp ${_ddp_headers})
install(FILES ${PROJECT_SOURCE_DIR}/ddp/ddp.h ${PROJECT_SOURCE_DIR}/ddp/ddp_mpi.h DESTINATION ${_include_dir} COMPONENT ddp)
# CMake permits a target in one export set of one component only, so the component "development" installs the other one.
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${PROJECT_BINARY_DIR}\" --component ddp
  --prefix \"\${CMAKE_INSTALL_PREFIX}\" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)" COMPONENT development)

# The engine and its dependencies. oarlock_engine is exported as oarlock::engine.
set(_libraries common http http_metrics http_client http_client_beast yaml fields config telemetry process recovery launcher_channel formats data checkpoint nn device optim report tracking engine)
foreach(library IN LISTS _libraries)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock COMPONENT development ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${_include_dir})
endforeach()
install(EXPORT oarlock NAMESPACE oarlock:: FILE oarlockTargets.cmake DESTINATION ${_package_dir} COMPONENT development)

# The public headers of the engine: those that a task includes, and those that they include themselves.
set(_headers
  common/cpu.h
  common/csv.h
  common/log.h
  common/memory_limit.h
  common/number.h
  common/status_macros.h
  common/text.h
  common/work_progress.h
  fields/fields.h
  trainer/config/evaluation.h
  trainer/config/limits.h
  trainer/data/batch.h
  trainer/data/cache_directory.h
  trainer/data/dataset.h
  trainer/data/fingerprint.h
  trainer/data/graph_archive.h
  trainer/data/graph_collation.h
  trainer/data/index_slice.h
  trainer/data/random.h
  trainer/engine/command_line.h
  trainer/engine/task.h
  trainer/nn/activation_checkpoint.h
  trainer/nn/mlp.h
  trainer/nn/module_tensors.h
  trainer/nn/scatter.h
  workloads/formats/crystal.h
  workloads/formats/extxyz.h
  workloads/formats/extxyz_comment.h
  workloads/formats/fasta.h
  workloads/formats/gzip_file.h
  workloads/formats/image_files.h
  workloads/formats/packed_records.h)
oarlock_install_headers(development ${_headers})

write_basic_package_version_file(${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/oarlockConfig.cmake.in ${PROJECT_BINARY_DIR}/oarlockConfig.cmake
  INSTALL_DESTINATION ${_package_dir})
install(FILES ${PROJECT_BINARY_DIR}/oarlockConfig.cmake ${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${PROJECT_SOURCE_DIR}/cmake/cuda.cmake DESTINATION ${_package_dir} COMPONENT ddp)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake DESTINATION ${_package_dir} COMPONENT development)
