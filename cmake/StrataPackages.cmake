# What is installed where, as components, and the packages that CPack makes of them. `./dev package`
# builds STRATA_INSTALLED and calls cpack; nothing here is part of a plain build.

set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # Tests need not be built to be left out.
set(packages ${CMAKE_BINARY_DIR}/packages)
set(deploy ${CMAKE_SOURCE_DIR}/deploy)

# ---- what is made of what was built

# The client library with all of ours that it needs, as one archive: what it links, and what that does.
set(sdk_parts strata_sdk)
set(unseen strata_sdk)
while(unseen)
  list(POP_FRONT unseen part)
  get_target_property(links ${part} LINK_LIBRARIES)
  foreach(link IN LISTS links)
    if(link MATCHES "^strata_" AND NOT link IN_LIST sdk_parts)
      get_target_property(type ${link} TYPE)
      if(type STREQUAL "STATIC_LIBRARY")
        list(APPEND sdk_parts ${link})
        list(APPEND unseen ${link})
      endif()
    endif()
  endforeach()
endwhile()
set(script "CREATE ${packages}/libstrata.a\n")
foreach(part IN LISTS sdk_parts)
  string(APPEND script "ADDLIB $<TARGET_FILE:${part}>\n")
endforeach()
file(GENERATE OUTPUT ${packages}/libstrata.mri CONTENT "${script}SAVE\nEND\n")
add_custom_command(OUTPUT ${packages}/libstrata.a
  COMMAND ${CMAKE_COMMAND} -E rm -f ${packages}/libstrata.a
  COMMAND ${CMAKE_AR} -M < ${packages}/libstrata.mri
  COMMAND ${CMAKE_STRIP} --strip-debug ${packages}/libstrata.a
  DEPENDS ${sdk_parts} COMMENT "libstrata.a")
configure_file(${deploy}/sdk/strata.pc.in ${packages}/strata.pc @ONLY)
configure_file(${deploy}/sdk/StrataConfig.cmake.in ${packages}/StrataConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${packages}/StrataConfigVersion.cmake COMPATIBILITY SameMinorVersion)

# Manual pages, completion and the services' configuration, out of each command's --help.
set(documents ${packages}/documents)
file(GLOB documents_py CONFIGURE_DEPENDS ${deploy}/documents/*.py)
set(documents_made ${documents}/coordinator.toml ${documents}/worker.toml)
add_custom_command(OUTPUT ${documents_made}
  COMMAND /usr/bin/python3 -B ${deploy}/documents/make_documents.py $<TARGET_FILE_DIR:strata> ${documents}
  DEPENDS strata strata-coordinator strata-worker ${documents_py} COMMENT "manual pages and completion")

# The example as it is built against the package.
file(READ ${CMAKE_SOURCE_DIR}/examples/cpp/ask.cc example)
string(REPLACE "\"sdk/cpp/strata.h\"" "<strata/strata.h>" example "${example}")
file(WRITE ${packages}/examples/ask.cc "${example}")

set(version ${PROJECT_VERSION})
set(components coordinator worker cli dev meta)
set(debian_coordinator strata-coordinator)
set(debian_worker strata-worker)
set(debian_cli strata-cli)
set(debian_dev libstrata-dev)
set(debian_meta strata)
set(changelogs)
foreach(component IN LISTS components)
  set(name ${debian_${component}})
  file(WRITE ${packages}/changelog/${name}/changelog
"${name} (${version}) unstable; urgency=medium

  * Release ${version}.

 -- Strata <strata@example.org>  Sun, 29 Nov 2026 00:00:00 +0000
")
  add_custom_command(OUTPUT ${packages}/changelog/${name}/changelog.gz
    COMMAND gzip -9nkf ${packages}/changelog/${name}/changelog)
  list(APPEND changelogs ${packages}/changelog/${name}/changelog.gz)
endforeach()
add_custom_target(package_files DEPENDS ${packages}/libstrata.a ${documents_made} ${changelogs})

# ---- what goes where

set(units lib/systemd/system)
install(TARGETS strata-coordinator RUNTIME DESTINATION bin COMPONENT coordinator)
install(FILES ${deploy}/systemd/strata-coordinator.service DESTINATION ${units} COMPONENT coordinator)
install(FILES ${deploy}/systemd/sysusers-coordinator.conf DESTINATION lib/sysusers.d
  RENAME strata-coordinator.conf COMPONENT coordinator)
install(FILES ${deploy}/systemd/tmpfiles-coordinator.conf DESTINATION lib/tmpfiles.d
  RENAME strata-coordinator.conf COMPONENT coordinator)
install(FILES ${documents}/coordinator.toml DESTINATION /etc/strata COMPONENT coordinator)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/models/recall ${CMAKE_SOURCE_DIR}/models/recall-tools DESTINATION share/strata/models COMPONENT coordinator)

install(TARGETS strata-worker RUNTIME DESTINATION bin COMPONENT worker)
install(FILES ${deploy}/systemd/strata-worker.service ${deploy}/systemd/strata-worker@.service
  DESTINATION ${units} COMPONENT worker)
install(FILES ${deploy}/systemd/sysusers-worker.conf DESTINATION lib/sysusers.d
  RENAME strata-worker.conf COMPONENT worker)
install(FILES ${documents}/worker.toml DESTINATION /etc/strata COMPONENT worker)

# What both services need is in the command line's package, on which both depend.
install(TARGETS strata RUNTIME DESTINATION bin COMPONENT cli)
install(PROGRAMS ${deploy}/systemd/restart-delay DESTINATION lib/strata COMPONENT cli)

foreach(program coordinator worker)
  install(FILES ${documents}/man/strata-${program}.8.gz DESTINATION share/man/man8 COMPONENT ${program})
endforeach()
install(FILES ${documents}/man/strata.1.gz DESTINATION share/man/man1 COMPONENT cli)
set(program_cli strata)
set(program_coordinator strata-coordinator)
set(program_worker strata-worker)
foreach(component cli coordinator worker)
  install(FILES ${documents}/bash/${program_${component}} DESTINATION share/bash-completion/completions
    COMPONENT ${component})
  install(FILES ${documents}/zsh/_${program_${component}} DESTINATION share/zsh/vendor-completions
    COMPONENT ${component})
endforeach()

install(FILES ${CMAKE_SOURCE_DIR}/sdk/cpp/strata.h DESTINATION include/strata COMPONENT dev)
install(DIRECTORY ${CMAKE_BINARY_DIR}/proto/strata DESTINATION include COMPONENT dev
  FILES_MATCHING PATTERN "*.pb.h")
install(DIRECTORY ${CMAKE_SOURCE_DIR}/proto/strata DESTINATION share/strata/proto COMPONENT dev)
set(multiarch lib/${CMAKE_CXX_LIBRARY_ARCHITECTURE})
install(FILES ${packages}/libstrata.a DESTINATION ${multiarch} COMPONENT dev)
install(FILES ${packages}/strata.pc DESTINATION ${multiarch}/pkgconfig COMPONENT dev)
install(FILES ${packages}/StrataConfig.cmake ${packages}/StrataConfigVersion.cmake
  DESTINATION ${multiarch}/cmake/Strata COMPONENT dev)
install(FILES ${packages}/examples/ask.cc DESTINATION share/doc/libstrata-dev/examples COMPONENT dev)

foreach(component IN LISTS components)
  install(FILES ${deploy}/debian/copyright ${packages}/changelog/${debian_${component}}/changelog.gz
    DESTINATION share/doc/${debian_${component}} COMPONENT ${component})
endforeach()

# ---- the packages

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME strata)
set(CPACK_PACKAGE_VERSION ${version})
set(CPACK_PACKAGE_CONTACT "Strata <strata@example.org>")
set(CPACK_PACKAGE_VENDOR Strata)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${packages})
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${components})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${CPACK_PACKAGE_CONTACT})
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)

foreach(component IN LISTS components)
  string(TOUPPER ${component} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${debian_${component}})
  set(CPACK_DEBIAN_${upper}_PACKAGE_SECTION net)
endforeach()
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_META_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_META_PACKAGE_SECTION metapackages)
set(CPACK_DEBIAN_META_PACKAGE_SHLIBDEPS OFF)
set(CPACK_DEBIAN_DEV_PACKAGE_SHLIBDEPS OFF)

set(service_needs "strata-cli (= ${version}), init-system-helpers (>= 1.54), systemd | systemd-sysusers, passwd")
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_DEPENDS "${service_needs}, ca-certificates")
set(CPACK_DEBIAN_WORKER_PACKAGE_DEPENDS "${service_needs}")
# For --announce and `strata-worker join --discover`, which nobody has to use: it opens a port.
set(CPACK_DEBIAN_COORDINATOR_PACKAGE_SUGGESTS "avahi-utils")
set(CPACK_DEBIAN_WORKER_PACKAGE_SUGGESTS "avahi-utils")
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS
  "libgrpc++-dev, libprotobuf-dev, libabsl-dev, libssl-dev")
set(CPACK_DEBIAN_DEV_PACKAGE_SUGGESTS "pkg-config, cmake")
set(CPACK_DEBIAN_META_PACKAGE_DEPENDS
  "strata-coordinator (= ${version}), strata-worker (= ${version}), strata-cli (= ${version})")
foreach(component coordinator worker)
  string(TOUPPER ${component} upper)
  foreach(script postinst prerm postrm)
    configure_file(${deploy}/debian/${component}.${script} ${packages}/scripts/${component}/${script} COPYONLY)
    list(APPEND CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${packages}/scripts/${component}/${script})
  endforeach()
  file(WRITE ${packages}/scripts/${component}/conffiles "/etc/strata/${component}.toml\n")
  list(APPEND CPACK_DEBIAN_${upper}_PACKAGE_CONTROL_EXTRA ${packages}/scripts/${component}/conffiles)
endforeach()

set(CPACK_COMPONENT_COORDINATOR_DESCRIPTION "coordinator of a cluster that runs language models
A Strata cluster splits a language model over unequal machines. The
coordinator knows the workers, places models on them, and serves requests
over gRPC and HTTP, as OpenAI's clients send them.

It comes with a small model to try everything with.")
set(CPACK_COMPONENT_WORKER_DESCRIPTION "worker of a cluster that runs language models
A Strata cluster splits a language model over unequal machines. Each
machine runs a worker, which computes the layers that it is given.

It has kernels for every instruction set, and takes the best by itself.")
set(CPACK_COMPONENT_CLI_DESCRIPTION "command line of a cluster that runs language models
A Strata cluster splits a language model over unequal machines. This is
the command line for those who use it and those who look after it.")
set(CPACK_COMPONENT_DEV_DESCRIPTION "C++ client library of a cluster that runs language models
A Strata cluster splits a language model over unequal machines. These are
the headers and the library of its client for C++, with files for
pkg-config and CMake.")
set(CPACK_COMPONENT_META_DESCRIPTION "whole node of a cluster that runs language models
A Strata cluster splits a language model over unequal machines. This
package brings a coordinator, a worker and the command line to one.")
include(CPack)
