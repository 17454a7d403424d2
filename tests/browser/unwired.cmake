# The page: is the checked-in build fresh, does WebAssembly answer as native code does, does it work in a browser. What
# is not installed (tools/setup web) is skipped with its reason.
add_test(NAME browser_build_is_fresh COMMAND ${CMAKE_SOURCE_DIR}/tools/web check)
set_tests_properties(browser_build_is_fresh PROPERTIES LABELS "browser")

add_executable(native_evaluate native_evaluate.cc ${CMAKE_SOURCE_DIR}/web/wasm/evaluate.cc)
target_link_libraries(native_evaluate PRIVATE trifold_report trifold_options)

find_program(TRIFOLD_NODE NAMES node nodejs)
if(TRIFOLD_NODE)
  add_test(NAME browser_parity COMMAND ${TRIFOLD_NODE} ${CMAKE_CURRENT_SOURCE_DIR}/parity.mjs $<TARGET_FILE:native_evaluate>)
  add_test(NAME browser_page COMMAND ${TRIFOLD_NODE} ${CMAKE_CURRENT_SOURCE_DIR}/page.mjs $<TARGET_FILE:trifold>
                                     ${CMAKE_CURRENT_BINARY_DIR}/page)
  set_tests_properties(browser_parity browser_page PROPERTIES LABELS "browser" SKIP_RETURN_CODE 77 TIMEOUT 600)
  set_tests_properties(browser_parity browser_page PROPERTIES ENVIRONMENT "TRIFOLD_DATA=${CMAKE_SOURCE_DIR}")
endif()
