# What cmake --install and cpack put where, in three components:
#   runtime      libgannet.so.0, licence, changes, list of parts (SBOM)
#   development  ann.h, libgannet.so, libgannet.a, CMake's and pkg-config's files
#   tools        gannet, gannet-bench, their manuals and completions
# Each can be installed alone: cmake --install BUILD --component tools.

install(TARGETS ${gannet_targets} EXPORT gannet-targets
  LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    COMPONENT runtime NAMELINK_COMPONENT development
  ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}" COMPONENT development)
install(FILES capi/include/ann.h DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}" COMPONENT development)

# --- CMake: find_package(gannet) ------------------------------------------------------------------
# Before 1.0 a minor version may change what programs are compiled against.
set(same_version SameMajorVersion)
if(PROJECT_VERSION_MAJOR EQUAL 0)
  set(same_version SameMinorVersion)
endif()
set(cmake_package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/gannet")
install(EXPORT gannet-targets NAMESPACE gannet:: DESTINATION "${cmake_package_dir}" COMPONENT development)
configure_package_config_file("${PROJECT_SOURCE_DIR}/capi/gannet-config.cmake.in" gannet-config.cmake
  INSTALL_DESTINATION "${cmake_package_dir}")
write_basic_package_version_file(gannet-config-version.cmake COMPATIBILITY ${same_version})
install(FILES "${PROJECT_BINARY_DIR}/gannet-config.cmake"
              "${PROJECT_BINARY_DIR}/gannet-config-version.cmake"
        DESTINATION "${cmake_package_dir}" COMPONENT development)

# --- pkg-config -----------------------------------------------------------------------------------
# The .pc file finds the rest from its own place, so the installed tree can be moved; unless a folder
# was given as an absolute path.
set(GANNET_PC_PREFIX "${CMAKE_INSTALL_PREFIX}")
if(NOT IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}")
  file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(GANNET_PC_PREFIX "\${pcfiledir}/${up}")
endif()
foreach(kind LIBDIR INCLUDEDIR)
  if(IS_ABSOLUTE "${CMAKE_INSTALL_${kind}}")
    set(GANNET_PC_${kind} "${CMAKE_INSTALL_${kind}}")
  else()
    set(GANNET_PC_${kind} "\${prefix}/${CMAKE_INSTALL_${kind}}")
  endif()
endforeach()
# What the archive needs, pkg-config --static tells; where there is only an archive, always.
set(GANNET_PC_LIBRARIES "-lgannet")
set(GANNET_PC_PRIVATE "-lstdc++ -lm -lpthread -ldl")
if(GANNET_HAS_CUDA)
  set(GANNET_PC_PRIVATE "-lcudart_static -lrt ${GANNET_PC_PRIVATE}")
endif()
if(NOT BUILD_SHARED_LIBS)
  string(APPEND GANNET_PC_LIBRARIES " ${GANNET_PC_PRIVATE}")
  set(GANNET_PC_PRIVATE "")
endif()
configure_file(capi/gannet.pc.in gannet.pc @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/gannet.pc" DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig"
        COMPONENT development)

# --- Texts ----------------------------------------------------------------------------------------
install(FILES LICENSE CHANGELOG.md DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT runtime)
include("${PROJECT_SOURCE_DIR}/packaging/sbom.cmake")
install(FILES "${PROJECT_BINARY_DIR}/gannet.cdx.json" DESTINATION "${CMAKE_INSTALL_DOCDIR}"
        COMPONENT runtime)

# --- Tools ----------------------------------------------------------------------------------------
if(GANNET_HAS_TOOL)
  set(tools gannet_tool)
  if(TARGET gannet-bench)
    list(APPEND tools gannet-bench)
    install(FILES tests/bench/gannet-bench.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools)
  endif()
  install(TARGETS ${tools} RUNTIME DESTINATION "${CMAKE_INSTALL_BINDIR}" COMPONENT tools)
  # They find the library from their own place, in the build folder too: its path would change the number that the
  # linker gives a program, and builds in two folders would not be equal.
  file(RELATIVE_PATH library_place "/prefix/${CMAKE_INSTALL_BINDIR}" "/prefix/${CMAKE_INSTALL_LIBDIR}")
  set_target_properties(${tools} PROPERTIES
    INSTALL_RPATH "$ORIGIN/${library_place}" BUILD_RPATH_USE_ORIGIN ON)
  set(from examples/gannet)
  install(FILES ${from}/gannet.1 DESTINATION "${CMAKE_INSTALL_MANDIR}/man1" COMPONENT tools)
  install(FILES ${from}/completion/gannet.bash RENAME gannet
          DESTINATION "${CMAKE_INSTALL_DATADIR}/bash-completion/completions" COMPONENT tools)
  install(FILES ${from}/completion/_gannet
          DESTINATION "${CMAKE_INSTALL_DATADIR}/zsh/site-functions" COMPONENT tools)
  install(FILES ${from}/completion/gannet.fish
          DESTINATION "${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d" COMPONENT tools)
endif()

include("${PROJECT_SOURCE_DIR}/packaging/cpack.cmake")
