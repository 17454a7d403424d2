// SPDX-License-Identifier: Apache-2.0

// The one function that the page's worker calls.

#include "web/wasm/evaluate.h"

extern "C" const char* evaluate(const char* request) {
  static trifold::page::Evaluator evaluator;
  static std::string answer;
  answer = evaluator.answer(request);
  return answer.c_str();
}
