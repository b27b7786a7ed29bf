# Installs the component "development", which contains the component "ddp" (install_ddp.cmake), and the engine for tasks out of
# tree: find_package(oarlock) and the target oarlock::engine (examples/own-task). The installed tree is relocatable.

# CMake permits a target in one export set of one component only, so the component "development" installs the other one.
install(CODE "execute_process(COMMAND \"${CMAKE_COMMAND}\" --install \"${PROJECT_BINARY_DIR}\" --component ddp
  --prefix \"\${CMAKE_INSTALL_PREFIX}\" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)" COMPONENT development)

# The engine and its dependencies. oarlock_engine is exported as oarlock::engine.
set(_libraries common http http_metrics http_client http_client_beast yaml fields config telemetry process recovery formats data checkpoint nn device optim report tracking engine)
foreach(library IN LISTS _libraries)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock COMPONENT development ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
endforeach()
install(EXPORT oarlock NAMESPACE oarlock:: FILE oarlockTargets.cmake DESTINATION ${_package_dir} COMPONENT development)

# The public headers of the engine: those that a task includes, and those that they include themselves.
set(_headers
  common/cpu.h
  common/csv.h
  common/log.h
  common/memory_limit.h
  common/mix_seed.h
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
install(FILES ${PROJECT_SOURCE_DIR}/cmake/dependencies.cmake DESTINATION ${_package_dir} COMPONENT development)
