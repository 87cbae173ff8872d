# cpack: .tar.gz of everything, and on Debian and Ubuntu libgannet0, libgannet-dev and gannet-tools.
# packaging/make_packages.sh makes both as they are meant to be handed out.

# Which GPU code is inside, in the names of files: cpu, or cuda13.0.
set(GANNET_CUDA_SET "cpu")
if(GANNET_HAS_CUDA)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" toolkit "${CMAKE_CUDA_COMPILER_VERSION}")
  set(GANNET_CUDA_SET "cuda${toolkit}")
endif()
string(TOLOWER "${CMAKE_SYSTEM_NAME}" system)

set(CPACK_PACKAGE_NAME gannet)
set(CPACK_PACKAGE_VENDOR "The Gannet maintainers")
set(GANNET_CONTACT "The Gannet maintainers <maintainers@gannet.invalid>" CACHE STRING
    "Whom packages name as their maintainer: who makes them gives a name that answers")
mark_as_advanced(GANNET_CONTACT)
set(CPACK_PACKAGE_CONTACT "${GANNET_CONTACT}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_FILE_NAME
    "gannet-${PROJECT_VERSION}-${system}-${CMAKE_SYSTEM_PROCESSOR}-${GANNET_CUDA_SET}")
set(CPACK_PACKAGE_CHECKSUM SHA256)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
if(NOT CPACK_GENERATOR)
  set(CPACK_GENERATOR TGZ)
endif()
set(CPACK_COMPONENTS_ALL runtime development)
if(GANNET_HAS_TOOL)
  list(APPEND CPACK_COMPONENTS_ALL tools)
endif()
set(CPACK_ARCHIVE_COMPONENT_INSTALL OFF)

# --- Debian ---------------------------------------------------------------------------------------
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_VERSION "${PROJECT_VERSION}")
if(GANNET_HAS_CUDA)
  string(APPEND CPACK_DEBIAN_PACKAGE_VERSION "+${GANNET_CUDA_SET}")
endif()
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${PROJECT_BINARY_DIR}")
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS ON)
set(CPACK_DEBIAN_PACKAGE_GENERATE_SHLIBS_POLICY ">=")
set(CPACK_DEBIAN_ENABLE_COMPONENT_DEPENDS OFF)
set(exactly "(= ${CPACK_DEBIAN_PACKAGE_VERSION})")

if(GANNET_HAS_CUDA)
  list(JOIN cuda_names ", " names)
  set(gpu_text "This build has GPU code for CUDA architectures ${names}. It needs a driver only where a GPU is used.")
else()
  set(gpu_text "This build is for the CPU alone.")
endif()

set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME "libgannet${PROJECT_VERSION_MAJOR}")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/debian/triggers")
set(CPACK_DEBIAN_RUNTIME_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION "${PROJECT_DESCRIPTION}: shared library
Finds, among many stored vectors, the few that lie nearest to a query.
${gpu_text}")

set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME libgannet-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} ${exactly}")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SUGGESTS "g++")  # for programs with the archive
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION "${PROJECT_DESCRIPTION}: development files
The C header ann.h, the archive, and what CMake and pkg-config need.")

set(CPACK_DEBIAN_TOOLS_PACKAGE_NAME gannet-tools)
set(CPACK_DEBIAN_TOOLS_PACKAGE_SECTION science)
set(CPACK_DEBIAN_TOOLS_PACKAGE_DEPENDS "${CPACK_DEBIAN_RUNTIME_PACKAGE_NAME} ${exactly}")
set(CPACK_COMPONENT_TOOLS_DESCRIPTION "${PROJECT_DESCRIPTION}: command-line tools
gannet indexes and searches files of vectors; gannet-bench measures.")

# Debian looks for the licence in a folder of each package's own.
option(GANNET_DEBIAN "Install what Debian's packages have and others have not" OFF)
if(GANNET_DEBIAN)
  foreach(component IN LISTS CPACK_COMPONENTS_ALL)
    string(TOUPPER "${component}" kind)
    install(FILES packaging/debian/copyright COMPONENT ${component}
            DESTINATION "${CMAKE_INSTALL_DATADIR}/doc/${CPACK_DEBIAN_${kind}_PACKAGE_NAME}")
  endforeach()
endif()

include(CPack)
