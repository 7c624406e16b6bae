# SPDX-License-Identifier: MIT
# Install rules: headers, both libraries, the CMake package and vrampool.pc.

include(CMakePackageConfigHelpers)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/vrampool")

install(
  TARGETS vrampool vrampool_shared vrampool_static
  EXPORT vrampoolTargets
  ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR}
  RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/vrampool DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

install(EXPORT vrampoolTargets NAMESPACE vrampool:: DESTINATION ${package_dir})

# The trace library is optional: it needs compression libraries that the pool
# does not, so its targets come in a file of their own.
if(TARGET vrampool_trace)
  install(TARGETS vrampool_trace EXPORT vrampoolTraceTargets
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT vrampoolTraceTargets NAMESPACE vrampool:: DESTINATION ${package_dir})
endif()

configure_package_config_file(
  src/cmake/vrampoolConfig.cmake.in "${PROJECT_BINARY_DIR}/vrampoolConfig.cmake"
  INSTALL_DESTINATION ${package_dir})
# Before 1.0 a minor version may break the ABI.
write_basic_package_version_file("${PROJECT_BINARY_DIR}/vrampoolConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/vrampoolConfig.cmake"
              "${PROJECT_BINARY_DIR}/vrampoolConfigVersion.cmake" DESTINATION ${package_dir})

# Absolute where the user gave absolute folders, else relative to the prefix.
foreach(dir LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${dir}}")
    set(pc_${dir} "${CMAKE_INSTALL_${dir}}")
  else()
    set(pc_${dir} "\${prefix}/${CMAKE_INSTALL_${dir}}")
  endif()
endforeach()
configure_file(src/cmake/vrampool.pc.in "${PROJECT_BINARY_DIR}/vrampool.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/vrampool.pc"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
