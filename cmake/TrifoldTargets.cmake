# Helpers for this project's targets: one static library a folder, warnings as errors in ours alone.

add_library(trifold_options INTERFACE)
target_compile_features(trifold_options INTERFACE cxx_std_20)
# Contraction off: the same bits from every compiler and from WebAssembly.
target_compile_options(trifold_options INTERFACE -Wall -Wextra -Werror -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  target_compile_options(trifold_options INTERFACE -Wno-restrict)  # false positives of g++ 12 on std::string
endif()
target_include_directories(trifold_options INTERFACE ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR})
target_compile_definitions(trifold_options INTERFACE TRIFOLD_SOURCE_DIR="${CMAKE_SOURCE_DIR}"
                                                     TRIFOLD_VERSION="${PROJECT_VERSION}")
if(TRIFOLD_SANITIZE)
  target_compile_options(trifold_options INTERFACE -fsanitize=${TRIFOLD_SANITIZE} -fno-omit-frame-pointer)
  target_link_options(trifold_options INTERFACE -fsanitize=${TRIFOLD_SANITIZE})
endif()

set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# trifold_library(NAME SOURCES a.cc ... DEPS base model ...): library trifold_NAME. Header-only when SOURCES is empty.
function(trifold_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LINK" ${ARGN})
  list(TRANSFORM ARG_DEPS PREPEND trifold_)
  if(ARG_SOURCES)
    add_library(trifold_${name} STATIC ${ARG_SOURCES})
    target_link_libraries(trifold_${name} PUBLIC ${ARG_DEPS} ${ARG_LINK} PRIVATE trifold_options)
    target_link_libraries(trifold_${name} PUBLIC trifold_options)
  else()
    add_library(trifold_${name} INTERFACE)
    target_link_libraries(trifold_${name} INTERFACE ${ARG_DEPS} ${ARG_LINK} trifold_options)
  endif()
endfunction()

# trifold_test(NAME SOURCES ... LIBS base model ... [LABELS unit]): a GoogleTest program, one ctest entry a test case.
function(trifold_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBS;LABELS;LINK" ${ARGN})
  list(TRANSFORM ARG_LIBS PREPEND trifold_)
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} ${ARG_LINK} trifold_options GTest::gtest GTest::gmock
                                        GTest::gtest_main)
  target_compile_options(${name} PRIVATE ${TRIFOLD_TEST_FLAGS})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  add_test(NAME ${name} COMMAND ${name} WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()
