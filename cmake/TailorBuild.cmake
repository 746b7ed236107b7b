# Compiler settings and the helper functions that every folder uses.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/bin")

# ccache and mold are used where found: they change build time only.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER
      ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
      ${CCACHE_PROGRAM})
endif()
find_program(MOLD_PROGRAM mold)
if(MOLD_PROGRAM)
  add_link_options(-fuse-ld=mold)
endif()

# Torch translation units need 1.3 to 2 GB each: never two at once.
set_property(GLOBAL PROPERTY JOB_POOLS torch=1)

# maybe-uninitialized: GCC 12 sees ghosts in std::variant.
add_library(tailor_warnings INTERFACE)
target_compile_options(tailor_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;-Wshadow;-Wconversion;-Wnon-virtual-dtor;-Wno-sign-conversion;-Wno-maybe-uninitialized>
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<BOOL:${TAILOR_WERROR}>>:-Werror>)

if(TAILOR_SANITIZE)
  add_compile_options(-fsanitize=${TAILOR_SANITIZE} -fno-omit-frame-pointer)
  add_link_options(-fsanitize=${TAILOR_SANITIZE})
  if(TAILOR_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()

# tailor_library(NAME SOURCES a.cc b.cc PUBLIC libs... PRIVATE libs...): one static library a folder.
# Includes are written from the root of the tree ("storage/store.h").
function(tailor_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;PUBLIC;PRIVATE" ${ARGN})
  if(ARG_SOURCES)
    add_library(${name} STATIC ${ARG_SOURCES})
    target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE ${ARG_PRIVATE} tailor_warnings)
  else()
    add_library(${name} INTERFACE)
    target_include_directories(${name} INTERFACE ${PROJECT_SOURCE_DIR})
    target_link_libraries(${name} INTERFACE ${ARG_PUBLIC})
  endif()
endfunction()

# tailor_program(NAME SOURCES ... LINK libs...): an executable in build/<preset>/bin.
function(tailor_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LINK" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_LINK} tailor_warnings)
endfunction()

# tailor_test(NAME SOURCES ... LINK libs... [LABELS l...] [TIMEOUT seconds] [ENVIRONMENT VAR=value...]):
# one GoogleTest program for a folder; every TEST in it is a CTest test. TAILOR_TEST_DATA (tests/data)
# and TAILOR_BIN_DIR (the folder of the programs) are defined for it.
function(tailor_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LINK;LABELS;ENVIRONMENT;DEPENDS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  # Tests of one folder re-use names for their fixtures: no unity build.
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests" UNITY_BUILD OFF)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR})
  target_compile_definitions(${name} PRIVATE
    TAILOR_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
    TAILOR_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    TAILOR_BIN_DIR="${CMAKE_BINARY_DIR}/bin")
  target_link_libraries(${name} PRIVATE ${ARG_LINK} GTest::gtest GTest::gmock GTest::gtest_main tailor_warnings)
  foreach(dependency ${ARG_DEPENDS})
    if(TARGET ${dependency})  # some are left out with TAILOR_TORCH=OFF or TAILOR_GRPC=OFF
      add_dependencies(${name} ${dependency})
    endif()
  endforeach()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if(ARG_ENVIRONMENT)
    list(APPEND properties ENVIRONMENT "${ARG_ENVIRONMENT}")
  endif()
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX "${name}." PROPERTIES ${properties})
endfunction()
