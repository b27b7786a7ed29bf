# What a task out of tree builds against: find_package(oarlock) and the target oarlock::engine (examples/own-task).
# The component "development"; the tree may be moved after it was installed.
include(CMakePackageConfigHelpers)
set(_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/oarlock)
set(_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/oarlock)

# The engine and all that it is linked from. oarlock_engine is oarlock::engine there.
set(_libraries common http yaml config telemetry process data checkpoint nn device nccl distributed schedule optim engine)
foreach(library IN LISTS _libraries)
  set_target_properties(oarlock_${library} PROPERTIES EXPORT_NAME ${library})
  install(TARGETS oarlock_${library} EXPORT oarlock COMPONENT development ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
    INCLUDES DESTINATION ${_include_dir})
endforeach()
install(EXPORT oarlock NAMESPACE oarlock:: FILE oarlockTargets.cmake DESTINATION ${_package_dir} COMPONENT development)

# The headers that a task includes, and those that they include themselves; no others are an interface to the outside.
set(_headers common/error.h common/failure.h common/file_descriptor.h common/log.h trainer/config/early_stopping.h trainer/config/fields.h
    trainer/config/range.h trainer/engine/command_line.h trainer/engine/eval_pass.h trainer/engine/task.h trainer/engine/task_table.h)
file(GLOB _folders RELATIVE ${CMAKE_SOURCE_DIR} CONFIGURE_DEPENDS trainer/data/*.h trainer/nn/*.h)
foreach(header IN LISTS _headers _folders)
  cmake_path(GET header PARENT_PATH folder)
  install(FILES ${CMAKE_SOURCE_DIR}/${header} DESTINATION ${_include_dir}/${folder} COMPONENT development)
endforeach()

write_basic_package_version_file(${CMAKE_BINARY_DIR}/oarlockConfigVersion.cmake COMPATIBILITY SameMinorVersion)
configure_package_config_file(cmake/oarlockConfig.cmake.in ${CMAKE_BINARY_DIR}/oarlockConfig.cmake
  INSTALL_DESTINATION ${_package_dir})
install(FILES ${CMAKE_BINARY_DIR}/oarlockConfig.cmake ${CMAKE_BINARY_DIR}/oarlockConfigVersion.cmake
  cmake/dependencies.cmake cmake/torch.cmake cmake/cuda.cmake DESTINATION ${_package_dir} COMPONENT development)
