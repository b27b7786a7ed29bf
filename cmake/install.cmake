# Installs the component "development" for tasks out of tree: find_package(oarlock) and the target oarlock::engine
# (examples/own-task). The installed tree is relocatable.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/oarlock)
set(_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/oarlock)

# The engine and its dependencies. oarlock_engine is exported as oarlock::engine.
set(_libraries common http http_metrics http_client http_client_beast yaml fields config telemetry process recovery launcher_channel formats data checkpoint nn device distributed optim report tracking engine)
foreach(library IN LISTS _libraries)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock COMPONENT development ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${_include_dir})
endforeach()
install(EXPORT oarlock NAMESPACE oarlock:: FILE oarlockTargets.cmake DESTINATION ${_package_dir} COMPONENT development)

# The public headers: those that a task includes, and those that they include themselves.
set(_headers
  common/clock.h
  common/cpu.h
  common/csv.h
  common/error.h
  common/files.h
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
  trainer/nn/batch_norm.h
  trainer/nn/mlp.h
  trainer/nn/module_tensors.h
  trainer/nn/scatter.h
  trainer/nn/script_model.h
  workloads/formats/crystal.h
  workloads/formats/extxyz.h
  workloads/formats/extxyz_comment.h
  workloads/formats/fasta.h
  workloads/formats/gzip_file.h
  workloads/formats/image_files.h
  workloads/formats/packed_records.h)
foreach(header IN LISTS _headers)
  cmake_path(GET header PARENT_PATH directory)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${_include_dir}/${directory} COMPONENT development)
endforeach()

write_basic_package_version_file(${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/oarlockConfig.cmake.in ${PROJECT_BINARY_DIR}/oarlockConfig.cmake
  INSTALL_DESTINATION ${_package_dir})
install(FILES ${PROJECT_BINARY_DIR}/oarlockConfig.cmake ${PROJECT_BINARY_DIR}/oarlockConfigVersion.cmake
  ${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake ${PROJECT_SOURCE_DIR}/cmake/torch.cmake ${PROJECT_SOURCE_DIR}/cmake/cuda.cmake DESTINATION ${_package_dir} COMPONENT development)
